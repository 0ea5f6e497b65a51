//! Guests of all families continue from images of them.

use skein_harness::images::Images;
use skein_harness::restored;
use skein_harness::runner::How;

#[test]
fn guests_continue_from_images() {
    let went = restored::all(3, &[]).expect("they run");
    let went = went.expect("see the lines that begin with DIFFERS");
    // The others get no entry at which one could be taken, are refused, or end before.
    assert!(went.continued >= 120 && went.times >= 320, "{went:?}");
    assert!(went.compared >= 120, "{went:?}");
}

/// Each image of what changed since the one before is, page for page, the whole one.
#[test]
fn images_in_a_row_are_what_whole_ones_are() {
    let images = Images::build().expect("they are built");
    let alike = restored::rows(&images, 20, &[], How::default());
    let rows = alike.expect("they run").expect("see the lines that begin with DIFFERS");
    assert!(rows.guests >= 120 && rows.images >= 2_000, "{rows:?}");
    let is_before = rows.read_before > 0 && rows.shared_before > 0;
    assert!(is_before || !tells_writes(), "nothing was read before an image: {rows:?}");
}

/// Whether this kernel tells which pages were written: since Linux 6.7.
fn tells_writes() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc");
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(7))
}
