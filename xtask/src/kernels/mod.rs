//! Other kernels: servers that are restored from images on a kernel that did not take them.
//!
//! Each *machine* is a kernel of a distribution under QEMU, emulated without the host's help, on a disk that has Debian 12 and the zoo's servers; one more is this host. On
//! each machine a server of the zoo ([`inside`]) runs on three replicas under load, a replica takes an image, dies and continues from it, all replicas are compared, and an image is exported. Every other
//! machine begins a cluster with that file: what was acknowledged must be there, and the server must go on. Guests have a processor that can do nothing which the host's
//! cannot, so their images go everywhere. An image of the host may want more than QEMU emulates: then the refusal must name it.
//!
//! Invariants: it needs root, installs nothing, and ends by itself (a machine has a deadline). Kernels and the disk are kept below `target/kernels`; everything else lies in one
//! directory ([`place`]), which goes with this process however that ends. Guests die with this process, too.

mod fetch;
mod guest;
mod inside;
mod place;
mod plan;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skein_testkit::cluster::find_command;
use skein_testkit::{Failure, Outcome};

use self::fetch::Kernel;
use self::place::{DIR, WorkPlace};
use self::plan::{Carried, Given, Plan};
use crate::interrupt::Interrupt;
use crate::zoo::packages;
use crate::zoo::species::{self, Species};

pub use self::inside::{Options as InsideOptions, run as run_inside};

/// The servers when none is named.
const USUAL: [&str; 3] = ["redis", "memcached", "postgres"];
/// The name of this host among machines.
const HOST: &str = "host";

/// Which servers and kernels.
#[derive(clap::Args)]
pub struct Options {
    /// The servers' names in the zoo [default: redis memcached postgres]
    names: Vec<String>,
    /// A distribution whose kernel is booted; may be given again [default: debian-12, debian-13, ubuntu-25.10]
    #[arg(long = "kernel", value_name = "DISTRIBUTION")]
    kernels: Vec<String>,
    /// Leave out this host: guests alone
    #[arg(long)]
    no_host: bool,
    /// The longest time of a machine
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    machine_max_s: u64,
    /// Ask for one request more than was made, to see that this check can fail
    #[arg(long, hide = true)]
    spoil: bool,
}

/// One machine.
enum Machine {
    Guest(Kernel),
    Host,
}

impl Machine {
    fn name(&self) -> &str {
        match self {
            Self::Guest(kernel) => &kernel.release,
            Self::Host => HOST,
        }
    }
}

/// What is the same on all machines.
struct Journey<'a> {
    options: &'a Options,
    interrupt: &'a Interrupt,
    place: &'a WorkPlace,
    chosen: &'a [Species],
    disk: PathBuf,
    steps: u64,
    failed: u64,
}

/// Takes images on all machines, and carries each to all others; fails when anything differs.
pub fn run(options: &Options) -> Outcome {
    let usual = USUAL.map(String::from);
    let names = if options.names.is_empty() { &usual[..] } else { &options.names };
    let chosen = species::named(species::all()?, names)?;
    let mut wanted = packages(&chosen);
    fetch::check_tools(if options.no_host { &[] } else { &wanted })?;
    find_command()?;
    wanted.extend(fetch::GUEST_PACKAGES);
    let mut machines =
        fetch::kernels(&options.kernels)?.into_iter().map(Machine::Guest).collect::<Vec<Machine>>();
    let disk = fetch::disk(&wanted)?;
    if !options.no_host {
        machines.push(Machine::Host);
    }
    let interrupt = Interrupt::catch()?;
    let place = WorkPlace::make()?;
    let mut journey = Journey {
        options,
        interrupt: &interrupt,
        place: &place,
        chosen: &chosen,
        disk,
        steps: 0,
        failed: 0,
    };
    let travelled = journey.travel(&machines);
    let (steps, failed) = (journey.steps, journey.failed);
    place.remove()?;
    travelled?;
    // The format of test runners.
    println!("{} passed, {failed} failed", steps - failed);
    if failed == 0 { Ok(()) } else { Err(Failure(format!("{failed} steps failed"))) }
}

impl Journey<'_> {
    /// Each machine takes images and continues from those of the machines before it; then each continues from those of the machines behind it.
    fn travel(&mut self, machines: &[Machine]) -> Outcome {
        let mut taken: Vec<Vec<Carried>> = Vec::new();
        for machine in machines {
            let carried = taken.iter().flatten().cloned().collect();
            let begin = self.chosen.iter().map(|one| one.name.clone()).collect();
            let given = self.visit(machine, begin, carried)?;
            taken.push(given);
        }
        for (at, machine) in machines.iter().enumerate() {
            let carried: Vec<Carried> = taken[at + 1..].iter().flatten().cloned().collect();
            if !carried.is_empty() {
                self.visit(machine, Vec::new(), carried)?;
            }
        }
        Ok(())
    }

    /// Runs all that a plan says on one machine; answers the images that were taken there.
    fn visit(
        &mut self,
        machine: &Machine,
        begin: Vec<String>,
        carried: Vec<Carried>,
    ) -> Outcome<Vec<Carried>> {
        let name = machine.name();
        let planned = (begin.len() + carried.len()) as u64;
        self.steps += planned;
        let plan = Plan { machine: name.to_owned(), begin, carried, spoil: self.options.spoil };
        plan.write(Path::new(DIR))?;
        let limit = Duration::from_secs(self.options.machine_max_s);
        let mut said = Vec::new();
        let tell = |line: &str| match line.strip_prefix(inside::STEP) {
            Some(step) => println!("{name:<28}| {step}"),
            None => said.push(line.to_owned()),
        };
        let out = self.place.out(name)?;
        let ran = match machine {
            Machine::Guest(kernel) => {
                guest::boot(kernel, &self.disk, &plan, &out, limit, self.interrupt, tell)
            }
            Machine::Host => self.place.on_host(&out, limit, self.interrupt, tell),
        };
        self.interrupt.check()?;
        let given = ran.and_then(|()| Given::read(&out));
        let given = match given {
            Ok(given) => given,
            Err(failure) => {
                println!("{name:<28}| FAILED: {failure}");
                self.failed += planned;
                tell_end(&said);
                return Ok(Vec::new());
            }
        };
        self.failed += given.failed;
        if given.failed > 0 {
            tell_end(&said);
        }
        let from = |one: plan::Taken| Carried {
            file: out.join(&one.file),
            from: name.to_owned(),
            extensions: given.extensions.clone(),
            species: one.species,
            acknowledged: one.acknowledged,
        };
        Ok(given.taken.into_iter().map(from).collect())
    }
}

/// The last lines of what was no step.
fn tell_end(said: &[String]) {
    const LINES: usize = 60;
    for line in &said[said.len().saturating_sub(LINES)..] {
        println!("    {line}");
    }
}

/// Writes a file, and names it in the failure.
fn write(path: &Path, text: impl AsRef<[u8]>) -> Outcome {
    fs::write(path, text).map_err(|error| Failure::of(path.display(), error))
}
