//! Guests of all families continue from images of them.

use skein_harness::images::Images;
use skein_harness::restored;
use skein_harness::runner::How;

#[test]
fn guests_continue_from_images() {
    assert!(restored::all(3, &[]).expect("they run"), "see the lines that begin with DIFFERS");
}

/// Each image of what changed since the one before is, page for page, the whole one.
#[test]
fn images_in_a_row_are_what_whole_ones_are() {
    let images = Images::build().expect("they are built");
    let alike = restored::rows(&images, 20, &[], How::default());
    assert!(alike.expect("they run").is_some(), "see the lines that begin with DIFFERS");
}
