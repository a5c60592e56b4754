//! A budget that several evaluations share.

use crate::EvaluationError;

/// Steps that are left for evaluations that run one after the other: those of one patch, or of one query. Besides, each
/// may take no more than `limits::PATH_STEPS`. A step is a value looked at, or about as much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    steps: usize,
}

impl Budget {
    /// No bound except that of each evaluation.
    pub const UNBOUNDED: Self = Self { steps: usize::MAX };

    /// So many steps.
    #[must_use]
    pub const fn new(steps: usize) -> Self {
        Self { steps }
    }

    /// How many are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.steps
    }

    /// Takes steps for work beside the evaluations.
    ///
    /// # Errors
    /// [`EvaluationError::BudgetSpent`] if there are fewer. None is left then.
    pub fn charge(&mut self, steps: usize) -> Result<(), EvaluationError> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.map(|_| ()).ok_or(EvaluationError::BudgetSpent)
    }
}
