//! The headers of an ELF file: whether the runtime can be loaded into it.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// The loader of glibc on x86-64; its directory differs between distributions, its name does not.
const GLIBC_LOADER: &str = "ld-linux-x86-64.so.2";

/// The reason why Skein cannot run an ELF file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Truncated or inconsistent headers.
    Damaged,
    /// For another machine.
    Architecture(String),
    /// An object file or a core dump.
    NotExecutable,
    /// Made by the Go tool chain, which makes its system calls itself.
    Go,
    /// No program interpreter.
    Static,
    /// An interpreter that is not glibc's.
    OtherLibc(String),
}

/// Whether `data` starts as an ELF file does.
pub(super) fn is_elf(data: &[u8]) -> bool {
    data.starts_with(&elf::ELFMAG)
}

/// Checks a program; gives the path of its dynamic loader.
pub(super) fn check_program(data: &[u8]) -> Result<String, Refusal> {
    check_machine(data)?;
    let header = FileHeader64::<Endianness>::parse(data).map_err(|_| Refusal::Damaged)?;
    let endian = header.endian().map_err(|_| Refusal::Damaged)?;
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return Err(Refusal::NotExecutable);
    }
    let segments = header.program_headers(endian, data).map_err(|_| Refusal::Damaged)?;
    if is_go(header, endian, segments, data) {
        return Err(Refusal::Go);
    }
    for segment in segments {
        match segment.interpreter(endian, data) {
            Ok(Some(path)) => {
                let path = String::from_utf8_lossy(path).into_owned();
                let name = path.rsplit('/').next().unwrap_or_default();
                return match name == GLIBC_LOADER && path.starts_with('/') {
                    true => Ok(path),
                    false => Err(Refusal::OtherLibc(path)),
                };
            }
            Ok(None) => {}
            Err(_) => return Err(Refusal::Damaged),
        }
    }
    Err(Refusal::Static)
}

fn check_machine(data: &[u8]) -> Result<(), Refusal> {
    // e_ident[EI_CLASS], e_ident[EI_DATA] and e_machine are at the same place in every ELF file.
    let [_, _, _, _, class, order, rest @ ..] = data else { return Err(Refusal::Damaged) };
    let machine = rest.get(12..14).ok_or(Refusal::Damaged)?;
    let machine = match *order {
        elf::ELFDATA2LSB => u16::from_le_bytes([machine[0], machine[1]]),
        elf::ELFDATA2MSB => u16::from_be_bytes([machine[0], machine[1]]),
        _ => return Err(Refusal::Damaged),
    };
    let name = match machine {
        elf::EM_X86_64 if *class == elf::ELFCLASS64 => return Ok(()),
        elf::EM_X86_64 => "x32".to_owned(),
        elf::EM_386 => "32-bit x86".to_owned(),
        elf::EM_AARCH64 => "arm64".to_owned(),
        elf::EM_ARM => "32-bit arm".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        elf::EM_PPC64 => "ppc64".to_owned(),
        elf::EM_S390 => "s390".to_owned(),
        other => format!("ELF machine {other}"),
    };
    Err(Refusal::Architecture(name))
}

fn is_go(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    segments: &[elf::ProgramHeader64<Endianness>],
    data: &[u8],
) -> bool {
    // Stripping keeps the note; some linkers' flags drop the note but keep the section.
    let noted = segments.iter().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { return false };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Go" {
                return true;
            }
        }
        false
    });
    let Ok(sections) = header.sections(endian, data) else { return noted };
    noted
        || sections.iter().any(|section| {
            matches!(sections.section_name(endian, section), Ok(b".go.buildinfo" | b".gopclntab"))
                && section.sh_size(endian) > 0
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(class: u8, order: u8, machine: u16) -> Vec<u8> {
        let mut data = vec![0; 64];
        data[..4].copy_from_slice(&elf::ELFMAG);
        data[4] = class;
        data[5] = order;
        data[6] = 1;
        let bytes = match order {
            elf::ELFDATA2MSB => machine.to_be_bytes(),
            _ => machine.to_le_bytes(),
        };
        data[18..20].copy_from_slice(&bytes);
        data
    }

    #[test]
    fn another_machine_is_named() {
        let cases = [
            (elf::ELFCLASS32, elf::ELFDATA2LSB, elf::EM_386, "32-bit x86"),
            (elf::ELFCLASS32, elf::ELFDATA2LSB, elf::EM_X86_64, "x32"),
            (elf::ELFCLASS64, elf::ELFDATA2LSB, elf::EM_AARCH64, "arm64"),
            (elf::ELFCLASS64, elf::ELFDATA2MSB, elf::EM_S390, "s390"),
            (elf::ELFCLASS64, elf::ELFDATA2LSB, 0x1234, "ELF machine 4660"),
        ];
        for (class, order, machine, name) in cases {
            let refused = check_program(&header(class, order, machine));
            assert_eq!(refused, Err(Refusal::Architecture(name.to_owned())));
        }
    }

    #[test]
    fn every_truncation_is_refused_without_a_panic() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        assert!(check_program(&data).is_ok());
        for len in 0..256 {
            assert!(check_program(&data[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_object_file_is_not_executable() {
        let mut data = std::fs::read("/proc/self/exe").unwrap();
        data[16] = 1;
        assert_eq!(check_program(&data), Err(Refusal::NotExecutable));
    }
}
