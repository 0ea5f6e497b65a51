//! A processor that can fault on `cpuid` can be taken for one that cannot.

use skein_harness::images::Images;
use skein_harness::node::{ORDINARY, Role};
use skein_harness::runner::{How, skein};
use skein_harness::script::Script;
use skein_harness::sys::faults_on_cpuid;

#[test]
fn trapping_cpuid_can_be_switched_off() {
    let images = Images::build().expect("the guests build");
    let program = images.guests.join("trap/net_rdtsc");
    for no_cpuid_faulting in [false, true] {
        let role = Role::Leader(Script::default(), ORDINARY);
        let how = How { no_cpuid_faulting, ..How::default() };
        let run = skein(&program, &[], &images.library, role, how).expect("it runs");
        let told = run.account.advice.iter().any(|line| line.contains("cannot hide rdrand"));
        assert_eq!(told, no_cpuid_faulting || !faults_on_cpuid(), "{:?}", run.account.advice);
        let words = String::from_utf8(run.stderr).unwrap();
        let shown = if told { is_x86_feature_detected!("rdrand") } else { false };
        assert!(words.contains(&format!("rdrand {}", u8::from(shown))), "{words}");
    }
}
