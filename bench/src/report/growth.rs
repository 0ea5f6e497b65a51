//! `bench/reports/growth.md`, how figures grow: a table and plots for each topic.

use std::fmt::Write as _;

use super::Page;
use super::plots::{Axes, Lines};
use super::text::{number, table};
use crate::about;
use crate::growth::{self, Figure, Growth, TOPICS, Topic};
use skein_testkit::Outcome;

/// The document and its plots; nothing without measurements.
pub fn pages() -> Outcome<Vec<Page>> {
    let Some(growth) = stored()? else { return Ok(Vec::new()) };
    let mut pages = vec![Page { path: "bench/reports/growth.md".to_owned(), text: text(&growth) }];
    for topic in TOPICS {
        for figure in topic.figures.iter().filter(|figure| figure.plotted) {
            let curves = curves(&growth, topic, figure);
            if curves.is_empty() {
                continue;
            }
            let title = format!("{}: {}", topic.title, plain(figure.label));
            let lines = Lines {
                title: &title,
                x: topic.x,
                y: &plain(figure.label),
                curves,
                axes: Axes::Logarithmic,
            };
            pages.push(Page { path: path(topic, figure), text: lines.svg()? });
        }
    }
    Ok(pages)
}

fn stored() -> Outcome<Option<Growth>> {
    about::read(&growth::stored())
}

fn path(topic: &Topic, figure: &Figure) -> String {
    format!("bench/reports/plots/growth-{}-{}.svg", topic.name, figure.key.replace('_', "-"))
}

/// Without the marks of Markdown.
fn plain(label: &str) -> String {
    label.replace('`', "")
}

fn curves<'a>(
    growth: &'a Growth,
    topic: &Topic,
    figure: &Figure,
) -> Vec<(&'a str, Vec<(f64, f64)>)> {
    let (points, curves) = growth.of(topic);
    let of = |curve: &str| -> Vec<(f64, f64)> {
        let own = points.iter().filter(|point| point.curve == curve);
        own.filter_map(|point| Some((point.x, *point.values.get(figure.key)?))).collect()
    };
    let all = curves.into_iter().map(|curve| (curve, of(curve)));
    all.filter(|(_, points)| !points.is_empty()).collect()
}

fn text(growth: &Growth) -> String {
    let about = &growth.about;
    let mut text = format!(
        "# How it grows\n\n\
         Written by `cargo xtask bench --report` from `bench/results/growth.json`. Don't edit it by hand. How single\n\
         servers compare with native is in [servers](servers.md).\n\n\
         Measured by `{}`, the last of them {}, on machines with the same number of cores; each point once, 1.5 s, so single points are less sure\n\
         than the tables there.\n\
         Memory is what is resident: the node's includes the arena, which the server's has as well.\n\n",
        about.command,
        about.day(),
    );
    for topic in TOPICS {
        let (points, curves) = growth.of(topic);
        if points.is_empty() {
            continue;
        }
        // What no point has was not measured yet.
        let measured =
            |figure: &&Figure| points.iter().any(|at| at.values.contains_key(figure.key));
        let figures: Vec<&Figure> = topic.figures.iter().filter(measured).collect();
        let mut head = vec![String::new(), topic.x.to_owned()];
        head.extend(figures.iter().map(|figure| figure.label.to_owned()));
        let mut rows = vec![head];
        for curve in curves {
            for point in points.iter().filter(|point| point.curve == curve) {
                let mut row =
                    vec![curve.to_owned(), number(point.x, usize::from(point.x.fract() != 0.0))];
                row.extend(figures.iter().map(|figure| {
                    let value = point.values.get(figure.key);
                    value.map_or("-".to_owned(), |value| number(*value, figure.digits))
                }));
                rows.push(row);
            }
        }
        let commits = growth.commits(topic).join(", ");
        let _ = writeln!(text, "## {}\n\nAt {commits}:\n\n{}", topic.title, table(&rows));
        for figure in topic.figures.iter().filter(|figure| figure.plotted) {
            let path = path(topic, figure);
            let at = path.trim_start_matches("bench/reports/");
            let _ = writeln!(text, "![{}: {}]({at})", topic.title, plain(figure.label));
        }
        let _ = writeln!(text, "\n{}\n", topic.reading);
    }
    for failure in &growth.failures {
        let _ = writeln!(text, "Not measured: {failure}\n");
    }
    text
}
