//! Plots as SVG.
//!
//! Without a background and in middle tones, so that they can be read on light and on dark pages. Sizes of letters are estimated by the
//! library, not taken from fonts of the machine, so that the same results give the same file everywhere.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::text::number;
use skein_testkit::{Failure, Outcome};

const SIZE: (u32, u32) = (900, 400);
/// Left edge of the curves' names.
const SIDE: u32 = 660;
/// Names of bars stand below this line, in columns of this width.
const FOOT: u32 = 370;
const COLUMN: i32 = 210;
const INK: RGBColor = RGBColor(118, 118, 118);
const GRID: RGBColor = RGBColor(150, 150, 150);
/// Middle tones of different lightness, so that they differ without colours, too.
const COLOURS: [RGBColor; 8] = [
    RGBColor(59, 130, 196),
    RGBColor(217, 119, 6),
    RGBColor(47, 158, 110),
    RGBColor(209, 73, 91),
    RGBColor(142, 107, 191),
    RGBColor(140, 120, 60),
    RGBColor(30, 150, 170),
    RGBColor(190, 90, 160),
];

/// Curves over an axis.
pub struct Lines<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// Below the horizontal axis, with the unit.
    pub x: &'a str,
    /// Beside the vertical axis, with the unit.
    pub y: &'a str,
    /// A name and its points, from left to right.
    pub curves: Vec<(&'a str, Vec<(f64, f64)>)>,
    /// Both axes.
    pub axes: Axes<'a>,
}

/// The axes of curves.
pub enum Axes<'a> {
    /// Logarithmic.
    Logarithmic,
    /// From 0 on, with upright lines where something happened.
    Linear(&'a [f64]),
}

/// Groups of bars.
pub struct Bars<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// Beside the vertical axis, with the unit.
    pub y: &'a str,
    /// A name below each group.
    pub groups: Vec<String>,
    /// A name and a value for each group.
    pub series: Vec<(&'a str, Vec<Option<f64>>)>,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::of("cannot draw a plot", error)
}

impl Lines<'_> {
    /// The file's text.
    pub fn svg(&self) -> Outcome<String> {
        let points = || self.curves.iter().flat_map(|(_, points)| points).copied();
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let (plot, side) = root.split_horizontally(SIDE);
            let mut builder = ChartBuilder::on(&plot);
            builder
                .caption(self.title, ("sans-serif", 17, &INK))
                .margin(10)
                .x_label_area_size(42)
                .y_label_area_size(70);
            match self.axes {
                Axes::Logarithmic => {
                    let x = range(points().map(|(x, _)| x));
                    let y = range(points().map(|(_, y)| y));
                    let chart =
                        builder.build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale());
                    self.draw(chart.map_err(failed)?, 3)?;
                }
                Axes::Linear(marks) => {
                    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
                    let x = most(&mut points().map(|(x, _)| x));
                    let y = most(&mut points().map(|(_, y)| y)) * 1.1;
                    let mut chart = builder.build_cartesian_2d(0.0..x, 0.0..y).map_err(failed)?;
                    let upright = marks.iter().map(|at| {
                        PathElement::new([(*at, 0.0), (*at, y)], GRID.mix(0.7).stroke_width(1))
                    });
                    chart.draw_series(upright).map_err(failed)?;
                    self.draw(chart, 0)?;
                }
            }
            for (at, ((name, _), colour)) in
                self.curves.iter().zip(COLOURS.iter().cycle()).enumerate()
            {
                key(&side, (0, 50 + 22 * at as i32), name, *colour)?;
            }
            root.present().map_err(failed)?;
        }
        Ok(finished(svg))
    }

    /// Draws axes and curves, with points of this size.
    fn draw<X, Y>(
        &self,
        mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
        point: u32,
    ) -> Outcome
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.mix(0.4))
            .axis_style(INK)
            .label_style(("sans-serif", 12, &INK))
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()
            .map_err(failed)?;
        for ((_, points), colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line.point_size(point)).map_err(failed)?;
        }
        Ok(())
    }
}

impl Bars<'_> {
    /// The file's text.
    pub fn svg(&self) -> Outcome<String> {
        let highest = self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        let highest = highest.copied().fold(1.0, f64::max) * 1.15;
        let groups = self.groups.len() as f64;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let (plot, foot) = root.split_vertically(FOOT);
            let mut chart = ChartBuilder::on(&plot)
                .caption(self.title, ("sans-serif", 17, &INK))
                .margin(10)
                .x_label_area_size(24)
                .y_label_area_size(60)
                .build_cartesian_2d(-0.5..groups - 0.5, 0.0..highest)
                .map_err(failed)?;
            let name = |at: &f64| {
                let whole = (at - at.round()).abs() < 0.01 && at.round() >= 0.0;
                let named = self.groups.get(at.round().max(0.0) as usize).filter(|_| whole);
                named.cloned().unwrap_or_default()
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID.mix(0.4))
                .axis_style(INK)
                .label_style(("sans-serif", 12, &INK))
                .x_labels(self.groups.len() * 2 + 1)
                .x_label_formatter(&name)
                .y_desc(self.y)
                .draw()
                .map_err(failed)?;
            let width = 0.8 / self.series.len() as f64;
            for (at, ((name, values), colour)) in
                self.series.iter().zip(COLOURS.iter().cycle()).enumerate()
            {
                let left = -0.4 + at as f64 * width;
                let bars = values.iter().enumerate().filter_map(|(group, value)| {
                    let from = group as f64 + left;
                    let corners = [(from, 0.0), (from + width * 0.92, (*value)?)];
                    Some(Rectangle::new(corners, colour.filled()))
                });
                chart.draw_series(bars).map_err(failed)?;
                key(&foot, (60 + COLUMN * at as i32, 12), name, *colour)?;
            }
            root.present().map_err(failed)?;
        }
        Ok(finished(svg))
    }
}

/// A name and its colour.
fn key(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (x, y): (i32, i32),
    name: &str,
    colour: RGBColor,
) -> Outcome {
    area.draw(&Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled())).map_err(failed)?;
    let text =
        Text::new(name.to_owned(), (x + 22, y - 6), ("sans-serif", 12).into_font().color(&INK));
    area.draw(&text).map_err(failed)
}

/// A little more than the values need; at least a factor of two, for a logarithmic axis.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| {
            (least.min(value), most.max(value))
        });
    if least > most {
        return (1.0, 10.0);
    }
    (least / 1.3, (most * 1.3).max(least * 2.0))
}

/// 10000 as 10k, 65536 as 65.5k.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let digits = if value >= 1.0 && (value - value.round()).abs() < 0.05 { 0 } else { 2 };
    let text = number(value, digits);
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// In the form of the repository's files.
fn finished(svg: String) -> String {
    svg.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_axes_and_curves() {
        let lines = Lines {
            title: "Growth",
            x: "connections",
            y: "requests a second",
            curves: vec![("native", vec![(1.0, 10.0), (100.0, 1_000.0)])],
            axes: Axes::Logarithmic,
        };
        let svg = lines.svg().expect("drawn");
        for text in ["Growth", "connections", "requests a second", "native"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(svg, lines.svg().expect("drawn"), "the same again");
    }

    #[test]
    fn a_linear_plot_marks_what_happened() {
        let curves = vec![("Skein", vec![(1.0, 10.0), (100.0, 1_000.0)])];
        let lines = |axes| Lines { title: "Life", x: "s", y: "MiB", curves: curves.clone(), axes };
        let marked = lines(Axes::Linear(&[50.0])).svg().expect("drawn");
        assert_ne!(marked, lines(Axes::Linear(&[])).svg().expect("drawn"));
    }

    #[test]
    fn bars_are_named() {
        let bars = Bars {
            title: "Throughput",
            y: "of native",
            groups: vec!["redis SET".to_owned(), "nginx".to_owned()],
            series: vec![("proxy", vec![Some(0.5), None]), ("Skein", vec![Some(0.9), Some(0.8)])],
        };
        let svg = bars.svg().expect("drawn");
        for text in ["Throughput", "of native", "redis SET", "nginx", "proxy", "Skein"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(short(10_000.0), "10k");
        assert_eq!(short(65_536.0), "65.54k");
        assert_eq!(short(0.5), "0.5");
        assert_eq!(short(2_000_000.0), "2M");
    }
}
