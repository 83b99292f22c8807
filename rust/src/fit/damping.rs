//! How far Newton steps that may fail are held back.

/// Damping of the step; survives from one step to the next.
///
/// It rises by little at a time once it is felt, since steps shrink in proportion, and falls only after a step that went well
/// at once: were it to fall after each, every step along a narrow ridge would begin with one that fails. On the 2-D sinc with
/// N = 500 to 2000 that takes 0.6 of the attempts of a factor of ten both ways.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Damping {
    start: f64,
    value: f64,
    /// Whether the step under way has failed before.
    raised: bool,
}

impl Damping {
    const LEAST: f64 = 1e-12;
    const MOST: f64 = 1e6;
    /// Less than this hardly changes a step that has failed.
    pub(crate) const FELT: f64 = 1e-2;

    /// Before the first step, with this much of it.
    pub(crate) fn starting_at(start: f64) -> Self {
        Self {
            start,
            value: start,
            raised: false,
        }
    }

    /// For the next attempt at a step; `None` where attempts are over, and damping is what it was at first.
    pub(crate) fn value(&mut self) -> Option<f64> {
        if self.value > Self::MOST {
            (self.value, self.raised) = (self.start, false);
            return None;
        }
        Some(self.value)
    }

    /// After an attempt that failed.
    pub(crate) fn raise(&mut self) {
        self.value = (self.value * 3.0).max(Self::FELT);
        self.raised = true;
    }

    /// After a step that was taken.
    pub(crate) fn relax(&mut self) {
        if !self.raised {
            self.value = (self.value * 0.1).max(Self::LEAST);
        }
        self.raised = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damping_falls_after_steps_that_went_well_at_once_and_no_others() {
        let mut damping = Damping::starting_at(1e-3);
        let start = damping.value().unwrap();
        damping.relax();
        assert!(damping.value().unwrap() < start);
        let low = damping.value().unwrap();
        damping.raise();
        let raised = damping.value().unwrap();
        assert!(raised > low);
        damping.relax();
        assert!(damping.value() == Some(raised));
        damping.relax();
        assert!(damping.value().unwrap() < raised);
    }

    #[test]
    fn attempts_end_and_damping_is_as_at_first() {
        let mut damping = Damping::starting_at(1e-3);
        let start = damping.value();
        let attempts = (0..).take_while(|_| damping.value().inspect(|_| damping.raise()).is_some());
        assert!(attempts.count() < 30);
        assert_eq!(damping.value(), start);
    }
}
