//! Every planted defect can be put back: what it looks for stands once in its file, and its guest exists.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Complaint, Tree};
use crate::planted::list::{self, Defect, Finder};

/// Complaints about defects that cannot be put back.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| list::is_list(path)) {
        let complain = |text: String| Complaint::of_file(path, 0, text);
        match list::parse(text) {
            Err(why) => found.push(complain(why)),
            Ok(defects) => {
                for defect in defects {
                    found.extend(check_one(tree, &defect).into_iter().map(complain));
                    if !names.insert(defect.name.clone()) {
                        found
                            .push(complain(format!("{}: two defects have this name", defect.name)));
                    }
                }
            }
        }
    }
    found
}

fn check_one(tree: &Tree, defect: &Defect) -> Vec<String> {
    let Defect { name, file, finder, .. } = defect;
    let mut found = Vec::new();
    let text = file.to_str().and_then(|file| tree.text(file));
    match text {
        None => found.push(format!("{name}: there is no file {}", file.display())),
        Some(text) => found.extend(defect.apply(text).err()),
    }
    if let Finder::Guest(guest) = finder {
        let is_it = |path: &Path| path.with_extension("") == Path::new("guests").join(guest);
        if !tree.paths.iter().any(|path| is_it(path)) {
            found.push(format!("{name}: there is no guest {guest}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn one() -> u8 {\n    1\n}\n";

    fn complaints(find: &str, finder: &str) -> Vec<String> {
        let list = format!(
            "[[defect]]\nname = 'n'\nwhat = 'w'\nfile = 'crates/a/src/lib.rs'\nfind = '{find}'\nput = '2'\n{finder}\n"
        );
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", SOURCE),
            ("guests/tcp/echo.c", ""),
            ("xtask/planted/a.toml", &list),
        ]);
        check(&tree).iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn what_stands_once_can_be_put_back() {
        assert!(complaints("1", "seeds = 3").is_empty());
        assert!(complaints("1", "guest = 'tcp/echo'").is_empty());
    }

    #[test]
    fn a_line_that_moved_is_found() {
        for find in ["3", "n", "2"] {
            let said = complaints(find, "seeds = 3");
            assert!(said[0].contains("times in crates/a/src/lib.rs, not once"), "{said:?}");
        }
    }

    #[test]
    fn a_finder_that_is_missing_is_found() {
        assert!(complaints("1", "guest = 'tcp/no'")[0].contains("no guest tcp/no"));
        assert!(complaints("1", "")[0].contains("no variant of enum Finder"));
    }
}
