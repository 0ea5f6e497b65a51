//! The resources that the turn calls: [`Above`], given when the runtime begins.

use crate::files::{disk, inputs};
use crate::kernel::{Kernel, kernel};
use crate::thread::{self, Thread};
use crate::turn::above::{self, Above};
use crate::{process, restore, signal, spin};
use skein_arena::pool::Handle;
use skein_libos::net::{inbound, outbound, outside};
use skein_libos::signal::send;
use skein_model::Term;
use skein_model::entry::Record;

struct World;

/// Gives them to the turn.
pub fn give() {
    above::give(&World);
}

impl Above for World {
    fn before_entry(&self, k: &Kernel, applied: u64) {
        inputs::libraries::look(k, applied);
    }

    fn asks(&self, k: &Kernel) -> bool {
        let asks = k.files().inputs.are_asked();
        if asks {
            k.files().inputs.show(k);
        }
        asks
    }

    fn enter(&self, k: &Kernel, term: Term, record: &Record<'_>) {
        match *record {
            // The records that the turn itself handles.
            Record::Start(_)
            | Record::Digest { .. }
            | Record::Root { .. }
            | Record::Upgrade { .. }
            | Record::Bubble { .. } => {}
            Record::TermStart => inbound::term_start(k, term),
            Record::Open { conn, peer, local } => inbound::open(k, conn, peer, local),
            Record::Data { conn, bytes } => inbound::data(k, conn, bytes),
            Record::Fin { conn } => inbound::fin(k, conn),
            Record::Reset { conn } => inbound::reset(k, conn),
            Record::Drained { conn, bytes } => inbound::drained(k, conn, bytes),
            Record::Connected { conn } => outbound::connected(k, conn),
            Record::ConnectFailed { conn, errno } => outbound::failed(k, conn, errno),
            Record::Files { ask, facts } => k.files().inputs.answer(ask, facts),
            Record::Signal { number } => send::from_outside(k, number.into()),
            Record::Datagram { local, peer, bytes } => {
                outside::arrived(k, local, peer, bytes);
            }
            Record::DatagramFailed { local, peer, errno } => {
                outside::failed(k, local, peer, errno);
            }
        }
    }

    fn sent(&self, bytes: usize) {
        inputs::sent(kernel(), bytes);
    }

    fn tell_of_signals(&self) {
        signal::fault::report_outside();
    }

    fn gone(&self, k: &Kernel, thread: Handle<Thread>) {
        thread::gone(k, thread);
    }

    fn forked(&self) {
        spin::forked();
    }

    fn copy_memory(&self, k: &Kernel, at_gate: bool) {
        process::stand_in::make(k, at_gate);
    }

    fn restored(&self, k: &Kernel) {
        process::stand_in::restored();
        restore::end(k);
    }

    fn revived(&self) {
        restore::take_rights();
    }

    fn obey(&self, k: &Kernel) {
        process::end::obey(k);
    }

    fn before_fault(&self, signo: i32, code: i32) {
        disk::before_fault(signo, code);
    }
}
