//! The table of symbols (`crates/interpose/symbols.txt`) against the C library of this machine and against what `libskein.so` exports.

use object::{Object, ObjectSymbol, SymbolKind};
use skein_harness::images::Images;
use skein_interpose::symbols::{self, Class};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a library exports: every name but those of its versions.
fn exports(path: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|symbol| {
        // A version's name is absolute data.
        let version = symbol.section() == object::SymbolSection::Absolute
            && symbol.kind() == SymbolKind::Data;
        !symbol.is_undefined() && !version
    });
    defined.map(|symbol| symbol.name().expect("a name").to_owned()).collect()
}

/// Rows of a library, by name.
fn rows(library: &str) -> BTreeMap<&'static str, Class> {
    symbols::all().filter(|row| row.library == library).map(|row| (row.name, row.class)).collect()
}

fn libraries() -> BTreeSet<&'static str> {
    symbols::all().map(|row| row.library).collect()
}

fn say(what: &str, names: &BTreeSet<&str>) {
    assert!(
        names.is_empty(),
        "{what}: {names:?}; run `cargo xtask interposition --runtime target/release/libskein.so`, or add rows to crates/interpose/symbols.txt"
    );
}

#[test]
fn every_symbol_of_the_c_library_has_a_row_and_every_row_a_symbol() {
    assert!(libraries().len() >= 9);
    for library in libraries() {
        let path = Path::new("/lib/x86_64-linux-gnu").join(library);
        let (real, rows) = (exports(&path), rows(library));
        let missing = real.iter().map(String::as_str).filter(|name| !rows.contains_key(name));
        say(&format!("{library}: in no row"), &missing.collect());
        let gone = rows.keys().copied().filter(|name| !real.contains(*name));
        say(&format!("{library}: rows without a symbol"), &gone.collect());
    }
}

#[test]
fn what_is_hooked_is_what_the_runtime_exports() {
    let images = Images::build().expect("the runtime can be built");
    let exported = exports(&images.library);
    let mut hooked = BTreeSet::new();
    let mut known = BTreeSet::new();
    for row in symbols::all() {
        known.insert(row.name);
        if row.class == Class::Hooked {
            hooked.insert(row.name);
        }
    }
    assert!(hooked.len() > 200, "{}", hooked.len());
    let lost = hooked.iter().copied().filter(|name| !exported.contains(*name));
    say("hooked in the table, not exported", &lost.collect());
    let unsaid = exported.iter().map(String::as_str).filter(|name| !hooked.contains(name));
    // Of other libraries: C++ classes.
    let unsaid = unsaid.filter(|name| known.contains(name) || !name.starts_with("_ZNSt"));
    say("exported, not hooked in the table", &unsaid.collect());
}
