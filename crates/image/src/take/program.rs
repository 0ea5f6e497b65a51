//! Programs that processes have executed: each is executed again, so that the kernel makes its stack, its data segment and its auxiliary vector where they were.
//!
//! Where they are depends on the lengths of what an `exec` is given: the program's path, the arguments, the environment. They are read from the stack; the server may have
//! written over the strings, then others of the same length do.

use super::{Image, refused};
use crate::proc;
use crate::processes::Process;
use crate::{MemoryError, Result};
use skein_arena::restore::{self, FIRST_PROGRAM, Program};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

const WORD: u64 = 8;
/// The most bytes of a string that an `exec` is given.
const MOST_STRING: usize = 100 << 10;
/// The most bytes of arguments or environment.
const MOST_BYTES: u64 = 8 << 20;
/// More than the auxiliary vectors of two kernels differ in length.
const OTHERS_BYTES: u64 = 512;
/// The runtime puts itself first.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// A process's program, and where the kernel has put what it was given: addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    exe: String,
    /// The count of arguments, the arguments, the environment.
    stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
}

impl Given {
    pub(super) fn of(process: &Process) -> Result<Self> {
        let path = format!("/proc/{}/exe", process.host_pid);
        let exe = fs::read_link(&path).map_err(MemoryError::read(path))?;
        let path = format!("/proc/{}/stat", process.host_pid);
        let stat = proc::text(&path).map_err(MemoryError::read(&*path))?;
        let [stack, a, b, c, d] = addresses(&stat).ok_or_else(|| malformed(path))?;
        let exe = exe.to_string_lossy().into_owned();
        Ok(Self { exe, stack, arguments: [a, b], environment: [c, d] })
    }
}

fn malformed(what: String) -> MemoryError {
    MemoryError::Read { what, error: std::io::Error::other("it is not understood") }
}

/// `startstack`, `arg_start`, `arg_end`, `env_start` and `env_end` of `/proc/PID/stat`.
fn addresses(stat: &str) -> Option<[u64; 5]> {
    // Behind the name in parentheses is field 3.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some([field(28)?, field(48)?, field(49)?, field(50)?, field(51)?])
}

/// What an `exec` is given, with lengths that bring everything where it was.
struct Lengths {
    path: String,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
}

/// The strings of a list, each with a zero at its end, if there are `count` of them.
fn strings(bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let found: Vec<Vec<u8>> =
        bytes.strip_suffix(&[0])?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    (found.len() == count).then_some(found)
}

/// As many strings, with as many bytes, of which `first` is the first one.
fn others(bytes: usize, count: usize, first: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut made = vec![Vec::new(); count];
    first.clone_into(made.first_mut()?);
    let mut left = bytes.checked_sub(count + first.len())?;
    for string in made.iter_mut().filter(|string| string.is_empty()) {
        let len = left.min(MOST_STRING);
        *string = vec![b'x'; len];
        left -= len;
    }
    (left == 0).then_some(made)
}

/// Where an auxiliary vector is on a stack, and how many pairs it has with the last one: the server changes none of those that name the program. Others follow the version of the kernel that made the stack, which is
/// not always this one: the server may continue from an image.
fn find_vector(stack: &[u64], given: &[u64]) -> Option<(usize, usize)> {
    /// Above all keys.
    const KEYS_END: u64 = 256;
    let own: Vec<&[u64]> = given
        .chunks_exact(2)
        .filter(|pair| [libc::AT_PHDR, libc::AT_ENTRY, libc::AT_EXECFN].contains(&pair[0]))
        .collect();
    let pairs_at = |at: usize| {
        let pairs = stack.get(at..)?.chunks_exact(2);
        let len = pairs.clone().position(|pair| pair[0] == libc::AT_NULL)?;
        let is_one = pairs.clone().take(len).all(|pair| pair[0] < KEYS_END)
            && own.iter().all(|own| pairs.clone().take(len).any(|pair| pair == *own));
        is_one.then_some((at, len + 1))
    };
    // The environment ends with a zero.
    (1..stack.len()).filter(|at| stack[at - 1] == 0).find_map(pairs_at)
}

impl Image<'_, '_> {
    /// The number of a process's program, from 1; [`FIRST_PROGRAM`]: the first process's. That process has one for the case that it is not the program
    /// with which the server is started.
    pub(super) fn program(&mut self, process: &Process, is_first: bool) -> Result<u32> {
        let given = Given::of(process)?;
        if is_first {
            self.first_given = Some(given.clone());
        } else if self.first_given.as_ref() == Some(&given) {
            return Ok(FIRST_PROGRAM);
        }
        let lengths = match self.lengths(process, &given)? {
            Some(lengths) => lengths,
            None if is_first => return Ok(FIRST_PROGRAM),
            None => {
                return refused(
                    process,
                    format!(
                        "executed {}, by a path or with an environment that is not known any more",
                        given.exe
                    ),
                );
            }
        };
        let exe = self.name(&given.exe);
        let path = self.name(&lengths.path);
        let mut list = |strings: &[Vec<u8>]| {
            let at = self.names.len() as u64;
            for string in strings {
                self.names.extend_from_slice(string);
                self.names.push(0);
            }
            at
        };
        let (arguments, environment) = (list(&lengths.arguments), list(&lengths.environment));
        self.programs.push(Program {
            exe,
            path,
            arguments,
            environment,
            counts: [lengths.arguments.len() as u32, lengths.environment.len() as u32],
            stack: given.stack,
        });
        Ok(self.programs.len() as u32)
    }

    /// What an `exec` of the program is given; `None` when there is no path of the right length.
    fn lengths(&mut self, process: &Process, given: &Given) -> Result<Option<Lengths>> {
        let open = |name: &str| {
            let path = format!("/proc/{}/{name}", process.host_pid);
            File::open(&path).map_err(MemoryError::read(path))
        };
        let memory = open("mem")?;
        let bytes = |from: u64, to: u64| -> Result<Vec<u8>> {
            let len = to.checked_sub(from).filter(|len| *len <= MOST_BYTES);
            let what = || format!("the stack of process {}", process.pid);
            let mut bytes = vec![0; len.ok_or_else(|| malformed(what()))? as usize];
            memory.read_exact_at(&mut bytes, from).map_err(MemoryError::read(what()))?;
            Ok(bytes)
        };
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().expect("8")))
                .collect()
        };
        let vector = proc::read(format!("/proc/{}/auxv", process.host_pid))
            .map_err(MemoryError::read("auxv"))?;
        let vector = words(&vector);
        let vector_bytes = WORD * vector.len() as u64;
        if ![0, vector_bytes].contains(&self.head.vector_bytes) {
            let of = format!("executed {} through another program (binfmt_misc)", given.exe);
            return refused(process, of);
        }
        self.head.vector_bytes = vector_bytes;
        let lowest = given.stack.saturating_sub(OTHERS_BYTES);
        let stack = words(&bytes(lowest, given.arguments[0] / WORD * WORD)?);
        let unclear = || malformed(format!("the begin of the stack of process {}", process.pid));
        let (at, pairs) = find_vector(&stack, &vector).ok_or_else(unclear)?;
        // Of a longer vector the stack begins lower.
        let own_begin = ((given.stack - lowest) / WORD) as usize + vector.len();
        let begin = own_begin.checked_sub(2 * pairs).filter(|begin| *begin < at);
        let begin = begin.ok_or_else(unclear)?;
        let count = stack[begin] as usize;
        // The count, the arguments, a zero, the environment, a zero.
        let variables = count.checked_add(3).and_then(|used| (at - begin).checked_sub(used));
        let variables = variables.ok_or_else(unclear)?;
        let name = vector.chunks_exact(2).find(|pair| pair[0] == libc::AT_EXECFN);
        let name = name.ok_or_else(unclear)?[1];
        let mut executed = bytes(name, name + libc::PATH_MAX as u64)
            .or_else(|_| bytes(name, (name | 0xfff) + 1 - WORD))?;
        let len = executed.iter().position(|byte| *byte == 0).ok_or_else(unclear)?;
        executed.truncate(len);
        let Some(path) = self.path_of_length(process, &executed, &given.exe) else {
            return Ok(None);
        };
        let arguments = bytes(given.arguments[0], given.arguments[1])?;
        let environment = bytes(given.environment[0], given.environment[1])?;
        let arguments = strings(&arguments, count)
            .or_else(|| others(arguments.len(), count, b""))
            .ok_or_else(unclear)?;
        // The first process may have been started with another one.
        let whole = strings(&environment, variables).filter(|list| list[0].starts_with(PRELOAD));
        if let Some(list) = &whole
            && self.preload.is_none()
        {
            self.preload = list[0].split(|byte| *byte == b':').next().map(<[u8]>::to_vec);
        }
        let environment =
            whole.or_else(|| others(environment.len(), variables, self.preload.as_deref()?));
        Ok(environment.map(|environment| Lengths { path, arguments, environment }))
    }

    /// A path of the program that is as long as the one by which it was executed.
    fn path_of_length(&self, process: &Process, executed: &[u8], exe: &str) -> Option<String> {
        let id = |path: String| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let name = String::from_utf8(executed.to_vec()).ok()?;
        let is = id(format!("/proc/{}/exe", process.host_pid))?;
        if name.starts_with('/') && id(format!("/proc/{}/root{name}", self.init)) == Some(is) {
            return Some(name);
        }
        let is_firsts = self.first_given.as_ref().is_some_and(|first| first.exe == exe);
        if name == "/proc/self/exe" && is_firsts {
            return Some(name);
        }
        let more = name.len().checked_sub(exe.len())?;
        Some(format!("{}{exe}", "/".repeat(more)))
    }

    /// A process's program, in its record.
    pub(super) fn note_program(
        &mut self,
        process: &Process,
        found: &mut restore::Process,
    ) -> Result<()> {
        let is_first = self.processes.is_empty();
        found.program = self.program(process, is_first)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        let stat = format!("77 (a ) b) {}", fields.join(" "));
        assert_eq!(addresses(&stat), Some([28, 48, 49, 50, 51]));
        assert_eq!(addresses("77 (a) S 1"), None);
    }

    #[test]
    fn strings_that_were_written_over_get_others_of_their_length() {
        assert_eq!(strings(b"a\0bc\0", 2), Some(vec![b"a".to_vec(), b"bc".to_vec()]));
        assert_eq!(strings(b"a title", 2), None);
        assert_eq!(others(7, 2, b""), Some(vec![b"xxxxx".to_vec(), vec![]]));
        assert_eq!(others(9, 3, b"A=1"), Some(vec![b"A=1".to_vec(), b"xxx".to_vec(), vec![]]));
        assert_eq!(others(4, 2, b"A=1"), None);
    }

    #[test]
    fn an_auxiliary_vector_is_found() {
        let given = [33, 0x7000, 6, 4096, 3, 64, 0, 0];
        let stack = [1, 0x7ff0, 0, 0x7ff8, 0, 1, 0x7000, 6, 4096, 3, 64, 0, 0, 5];
        assert_eq!(find_vector(&stack, &given), Some((5, 4)));
        assert_eq!(find_vector(&stack[..8], &given), None);
        let of_another = [33, 0x7000, 6, 4096, 3, 65, 0, 0];
        assert_eq!(find_vector(&stack, &of_another), None);
    }

    #[test]
    fn an_auxiliary_vector_of_another_kernel_is_found() {
        // Linux 6.3 and newer tell of rseq, which the stack of a server from an older one does not name.
        let given = [33, 0x7000, 3, 64, 9, 0x50, 27, 28, 28, 32, 31, 0x7f, 0, 0];
        let stack = [0, 0, 1, 0x7ff0, 0, 0x7ff8, 0, 33, 0x7000, 3, 64, 9, 0x50, 31, 0x7f, 0, 0, 5];
        assert_eq!(find_vector(&stack, &given), Some((7, 5)));
    }
}
