//! What the processor can do for programs. A restored server goes on with what its libraries chose where its image was taken, so it needs a processor that can do
//! all of that.

use std::fs;
use std::sync::OnceLock;

/// Extensions whose instructions programs use when a processor has them, by the kernel's names. Not here: what the runtime hides or answers itself, hints that other
/// processors ignore, and what only kernels use.
const USED: &str = "3dnow 3dnowext abm adx aes amx_bf16 amx_complex amx_fp16 amx_int8 amx_tile apx_f avx avx2 avx512_4fmaps avx512_4vnniw avx512_bf16 avx512_bitalg \
    avx512_fp16 avx512_vbmi2 avx512_vnni avx512_vp2intersect avx512_vpopcntdq avx512bw avx512cd avx512dq avx512er avx512f avx512ifma avx512pf avx512vbmi avx512vl \
    avx_ifma avx_ne_convert avx_vnni avx_vnni_int16 avx_vnni_int8 bmi1 bmi2 clflushopt clwb clzero cmpccxadd cx16 enqcmd f16c fma fma4 fsgsbase gfni lahf_lm lwp \
    mmxext movbe movdir64b movdiri pclmulqdq pku pni popcnt raoint rdpru rtm serialize sha512 sha_ni sm3 sm4 sse4_1 sse4_2 sse4a ssse3 tbm vaes vpclmulqdq waitpkg \
    xop xsave xsavec xsaveopt";

/// The extensions that this host's processor has, in the order of their names; none where the kernel does not say.
pub fn extensions() -> &'static [String] {
    static FOUND: OnceLock<Vec<String>> = OnceLock::new();
    FOUND.get_or_init(|| listed(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()))
}

/// As `/proc/cpuinfo` lists them for the first processor.
fn listed(cpuinfo: &str) -> Vec<String> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let has = |name: &&str| flags.iter().any(|(_, all)| all.split(' ').any(|flag| flag == *name));
    USED.split_whitespace().filter(has).map(str::to_owned).collect()
}

/// Those of `needed` that this host's processor has not, in words; `None`: it has all, or nothing is known of it.
pub fn missing(needed: &[String]) -> Option<String> {
    missing_in(extensions(), needed)
}

fn missing_in(here: &[String], needed: &[String]) -> Option<String> {
    let missing: Vec<&str> =
        needed.iter().filter(|name| !here.contains(name)).map(String::as_str).collect();
    (!here.is_empty() && !missing.is_empty()).then(|| missing.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_those_that_the_kernel_lists() {
        let text = "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 rdrand\nvmx flags\t: xop\n\nprocessor\t: 1\nflags\t\t: fma\n";
        assert_eq!(listed(text), ["avx", "avx2", "sse4_2"]);
        assert_eq!(listed(""), [""; 0]);
        // Every processor that Skein runs on has it.
        assert!(extensions().iter().any(|name| name == "fsgsbase"), "{:?}", extensions());
    }

    #[test]
    fn what_is_missing_is_named_where_the_processor_is_known() {
        let [here, needed] =
            [["avx", "avx2"], ["avx2", "avx512f"]].map(|all| all.map(String::from));
        assert_eq!(missing_in(&here, &needed).as_deref(), Some("avx512f"));
        assert_eq!(missing_in(&here, &here), None);
        assert_eq!(missing_in(&here, &[]), None);
        assert_eq!(missing_in(&[], &needed), None);
    }
}
