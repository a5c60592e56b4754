//! The CPUs of each node and of the load.
//!
//! Promises: nodes share no CPU with each other or with the load, where there are four CPUs or more. Each node gets as
//! many as any other.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Outcome;

/// Nodes of a cluster.
pub const NODES: usize = 3;

/// CPUs by who runs on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// One list for each node. A single node has the first.
    pub nodes: Vec<Vec<usize>>,
    /// Those of the load generator.
    pub load: Vec<usize>,
}

impl Places {
    /// Over the CPUs that this process may use.
    ///
    /// # Errors
    /// If the kernel does not tell which.
    pub fn here() -> Outcome<Self> {
        let allowed = sched_getaffinity(None).map_err(|error| format!("cannot ask for the CPUs: {error}"))?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        Ok(Self::over(&cpus, first_sibling))
    }

    /// Over these. `core` names the core of a CPU, so that two nodes do not share one.
    fn over(cpus: &[usize], core: impl Fn(usize) -> usize) -> Self {
        let mut cpus = cpus.to_vec();
        cpus.sort_by_key(|cpu| (core(*cpu), *cpu));
        let first = cpus.first().copied().unwrap_or_default();
        let threads = cpus.iter().filter(|cpu| core(**cpu) == core(first)).count().max(1);
        let each = cpus.len() / (NODES + 1);
        let each = if each >= threads { each - each % threads } else { each };
        if each == 0 {
            let rest = cpus.iter().copied().filter(|cpu| *cpu != first).collect::<Vec<_>>();
            let load = if rest.is_empty() { vec![first] } else { rest };
            return Self { nodes: vec![vec![first]; NODES], load };
        }
        let nodes = cpus.chunks(each).take(NODES).map(<[usize]>::to_vec).collect();
        Self { nodes, load: cpus[NODES * each..].to_vec() }
    }

    /// CPUs of one node.
    #[must_use]
    pub fn each(&self) -> usize {
        self.nodes.first().map_or(1, Vec::len)
    }

    /// For a person.
    #[must_use]
    pub fn text(&self) -> String {
        let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let nodes = self.nodes.iter().map(|cpus| list(cpus)).collect::<Vec<_>>().join(", ");
        format!("nodes on CPUs {nodes}; load on {}", list(&self.load))
    }
}

/// The first CPU of the core; the CPU itself where the kernel does not tell.
fn first_sibling(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().split([',', '-']).next().and_then(|first| first.parse().ok()).unwrap_or(cpu)
}

/// Runs `action` with this thread on `cpus`. Processes that it starts stay there.
///
/// # Errors
/// If the kernel refuses these CPUs.
pub fn on<T>(cpus: &[usize], action: impl FnOnce() -> T) -> Outcome<T> {
    let failed = |error: rustix::io::Errno| format!("cannot run on CPUs {cpus:?}: {error}");
    let before = sched_getaffinity(None).map_err(failed)?;
    let mut wanted = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| wanted.set(*cpu));
    sched_setaffinity(None, &wanted).map_err(failed)?;
    let done = action();
    sched_setaffinity(None, &before).map_err(failed)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(count: usize, core: impl Fn(usize) -> usize) -> (Vec<Vec<usize>>, Vec<usize>) {
        let Places { nodes, load } = Places::over(&(0..count).collect::<Vec<_>>(), core);
        (nodes, load)
    }

    #[test]
    fn nodes_share_neither_cpus_nor_cores_where_there_are_enough() {
        let alone = |cpu| cpu;
        let ranges = |nodes: [std::ops::Range<usize>; 3]| nodes.map(Iterator::collect::<Vec<_>>).to_vec();
        assert_eq!(over(16, alone), (ranges([0..4, 4..8, 8..12]), vec![12, 13, 14, 15]));
        assert_eq!(over(4, alone), (ranges([0..1, 1..2, 2..3]), vec![3]));
        // CPU 0 shares its core with CPU 8.
        let (nodes, load) = over(16, |cpu| cpu % 8);
        assert_eq!((nodes[0].as_slice(), load.as_slice()), (&[0, 8, 1, 9][..], &[6, 14, 7, 15][..]));
        let (nodes, load) = over(14, |cpu| cpu / 2);
        assert_eq!((nodes[2].as_slice(), load.len()), (&[4, 5][..], 8));
    }

    #[test]
    fn with_few_cpus_the_load_has_those_that_the_nodes_have_not() {
        assert_eq!(over(2, |cpu| cpu), (vec![vec![0]; 3], vec![1]));
        assert_eq!(over(1, |cpu| cpu), (vec![vec![0]; 3], vec![0]));
    }

    #[test]
    fn a_thread_comes_back_to_its_cpus() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        let count = on(&[first], || sched_getaffinity(None).unwrap().count()).unwrap();
        assert_eq!((count, sched_getaffinity(None).unwrap()), (1, before));
    }
}
