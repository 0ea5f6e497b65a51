//! All machines of a cluster, by their replicas' ids, which count from 1.

use crate::machine::Machine;
use std::ops::Index;

/// See the [module](self).
pub struct Machines(Vec<Machine>);

impl FromIterator<Machine> for Machines {
    fn from_iter<T: IntoIterator<Item = Machine>>(machines: T) -> Self {
        Self(machines.into_iter().collect())
    }
}

impl Index<&u64> for Machines {
    type Output = Machine;

    fn index(&self, id: &u64) -> &Machine {
        &self.0[*id as usize - 1]
    }
}

impl Machines {
    pub fn get_mut(&mut self, id: u64) -> &mut Machine {
        &mut self.0[id as usize - 1]
    }

    /// One more, with the next number.
    pub fn push(&mut self, machine: Machine) {
        assert_eq!(machine.id.0, self.0.len() as u64 + 1, "numbers without a gap");
        self.0.push(machine);
    }

    pub fn values(&self) -> impl Iterator<Item = &Machine> {
        self.0.iter()
    }
}
