//! Finds the open transfers that turn the balances into a reading.
//!
//! The search for an order tries transfers one by one. Where dozens are open at once, it must be told which of them
//! lie before the next reading. That is a subset sum over all accounts at once. It is hard in the worst case and easy
//! mostly, because every account must come out right. A wrong or missing plan only costs time. It decides what is
//! tried first, never what is accepted.

/// A transfer that may be chosen.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub from: usize,
    pub to: usize,
    pub amount: i64,
    /// The transfer may never have happened. It is chosen only if the others are not enough.
    pub is_unknown: bool,
}

/// Looks for open transfers that together change each account by its `needed` amount, where that is known. Gives up
/// with `None` after `budget` choices, which it counts down.
pub(crate) fn choose(needed: &[Option<i64>], open: &[Open], budget: &mut usize) -> Option<Vec<usize>> {
    let mut plan = Plan { needed: needed.to_vec(), open, is_left: vec![true; open.len()], chosen: Vec::new() };
    plan.solve(budget).then_some(plan.chosen)
}

struct Plan<'a> {
    needed: Vec<Option<i64>>,
    open: &'a [Open],
    is_left: Vec<bool>,
    chosen: Vec<usize>,
}

impl Plan<'_> {
    fn solve(&mut self, budget: &mut usize) -> bool {
        let mut dropped = Vec::new();
        let is_solved = loop {
            if self.needed.iter().all(|needed| needed.is_none_or(|needed| needed == 0)) {
                break true;
            }
            if *budget == 0 || !self.is_in_reach() {
                break false;
            }
            *budget -= 1;
            let Some(best) = self.best() else {
                break false;
            };
            self.is_left[best] = false;
            self.change(best, 1);
            self.chosen.push(best);
            if self.solve(budget) {
                break true;
            }
            self.chosen.pop();
            self.change(best, -1);
            // Tries without this transfer.
            dropped.push(best);
        };
        for option in dropped {
            self.is_left[option] = true;
        }
        is_solved
    }

    /// The amounts needed after a choice; with a `sign` of minus one, after taking the choice back.
    fn change(&mut self, option: usize, sign: i64) {
        let Open { from, to, amount, .. } = self.open[option];
        self.needed[from] = self.needed[from].map(|needed| needed.saturating_add(sign * amount));
        self.needed[to] = self.needed[to].map(|needed| needed.saturating_sub(sign * amount));
    }

    fn left(&self) -> impl Iterator<Item = (usize, &Open)> {
        self.open.iter().enumerate().filter(|(option, _)| self.is_left[*option])
    }

    /// How far an account would be off if its needed amount changed by this.
    fn off(&self, account: usize, change: i64) -> i64 {
        self.needed[account].map_or(0, |needed| needed.saturating_add(change).saturating_abs())
    }

    /// Whether every account could come out right by itself.
    fn is_in_reach(&self) -> bool {
        let mut reach = vec![(0i64, 0i64); self.needed.len()];
        for (_, open) in self.left() {
            reach[open.from].0 = reach[open.from].0.saturating_sub(open.amount);
            reach[open.to].1 = reach[open.to].1.saturating_add(open.amount);
        }
        self.needed
            .iter()
            .zip(reach)
            .all(|(needed, (least, most))| needed.is_none_or(|needed| (least..=most).contains(&needed)))
    }

    /// The choice that brings all accounts nearest. It is taken from the choices that help the account with the
    /// fewest choices.
    fn best(&self) -> Option<usize> {
        let mut touching = vec![0usize; self.needed.len()];
        for (_, open) in self.left() {
            touching[open.from] += 1;
            touching[open.to] += 1;
        }
        let wrong = (0..self.needed.len()).filter(|&account| self.off(account, 0) != 0);
        let account = wrong.min_by_key(|&account| touching[account])?;
        let is_short = self.needed[account].is_some_and(|needed| needed > 0);
        let helps = |open: &Open| if is_short { open.to == account } else { open.from == account };
        let rank = |(option, open): &(usize, &Open)| {
            let now = self.off(open.from, 0).saturating_add(self.off(open.to, 0));
            let then = self.off(open.from, open.amount).saturating_add(self.off(open.to, -open.amount));
            (open.is_unknown, then.saturating_sub(now), *option)
        };
        self.left().filter(|(_, open)| open.from != open.to && helps(open)).min_by_key(rank).map(|(option, _)| option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(from: usize, to: usize, amount: i64) -> Open {
        Open { from, to, amount, is_unknown: false }
    }

    #[test]
    fn finds_the_transfers_that_make_the_difference() {
        let options = [open(0, 1, 5), open(1, 2, 3), open(0, 2, 2), open(2, 0, 9)];
        for set in 0u32..16 {
            let mut needed = vec![0; 3];
            for (at, option) in options.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0) {
                needed[option.from] -= options[at].amount;
                needed[option.to] += option.amount;
            }
            let chosen = choose(&needed.iter().copied().map(Some).collect::<Vec<_>>(), &options, &mut 1000)
                .expect("there is one");
            let mut sum = vec![0; 3];
            for option in chosen {
                sum[options[option].from] -= options[option].amount;
                sum[options[option].to] += options[option].amount;
            }
            assert_eq!(sum, needed, "{set:b}");
        }
        assert_eq!(choose(&[Some(-1), Some(1), Some(0)], &options, &mut 1000), None);
        assert_eq!(choose(&[Some(-5), None, None], &options, &mut 0), None);
    }

    #[test]
    fn what_may_not_have_happened_comes_last() {
        let unknown = Open { is_unknown: true, ..open(0, 1, 5) };
        let chosen = choose(&[Some(-5), None], &[unknown, open(0, 1, 2), open(0, 1, 3)], &mut 1000);
        assert_eq!(
            chosen.map(|mut chosen| {
                chosen.sort_unstable();
                chosen
            }),
            Some(vec![1, 2])
        );
    }
}
