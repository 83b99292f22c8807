//! Constants of the searches and loops of this folder. Evidence gains are in nats, alphas in units of unit-norm columns and
//! targets of unit variance.
//!
//! Sensitivities are changes of the evidence, from the worst to the best of 75 fits, and of the number of steps, where a constant is
//! halved or doubled: see `docs/notebook/constants.md`. Constants without a sensitivity protect against round-off, or are reached
//! by no fit of that set.

/// How far a loop continues before it returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Functions that gain less than this many nats are not added.
    pub(crate) gain: f64,
    /// Re-estimations of a single alpha that gain less than this many nats are left to the joint steps.
    pub(crate) step: f64,
    /// Joint steps continue until every |change in ln alpha| and |change in ln beta| is below this; infinite: no joint steps.
    pub(crate) tol: f64,
    /// Whether estimated noise precisions move.
    pub(crate) moves_noise: bool,
    /// A model gets no more functions once it has fewer rows than this for each; 0: no limit.
    pub(crate) rows_per_function: f64,
}

impl Effort {
    /// This effort for `n` outputs, whose gains add up. The final accuracy of the evidence stays.
    pub(crate) fn of_outputs(self, n: usize) -> Self {
        let scaled = |gain: f64| {
            if gain > Tuning::MIN_GAIN {
                n as f64 * gain
            } else {
                gain
            }
        };
        Self {
            gain: scaled(self.gain),
            step: scaled(self.step),
            ..self
        }
    }
}

/// Constants of the searches and loops.
pub(crate) struct Tuning;

impl Tuning {
    // Limits of the arithmetic.

    /// Relative round-off of sums over rows and of the objective. A tenth or tenfold: no change.
    pub(crate) const ROUNDING: f64 = 1e-13;
    /// Active functions for each update in place that has to precede a recomputation. With one update for any number of functions a fit
    /// of 250,000 rows with nearly dependent functions took 134 s instead of 27.
    pub(crate) const RECOMPUTATION_RATIO: usize = 8;
    /// Error of the means in nats from which the factors are recomputed after any update.
    pub(crate) const MAX_DRIFT: f64 = 1.0;
    /// A correction of the means that grows beyond this many nats makes the step fail.
    pub(crate) const MAX_GROWN_DRIFT: f64 = 1e4;
    /// Least part of a column (squared, relative) that is orthogonal to the active columns; below it S is round-off. A
    /// tenth or tenfold: no change.
    pub(crate) const MIN_ORTHOGONAL_PART: f64 = 1e-11;
    /// Least alpha: a prior standard deviation of 3e7. A tenth or tenfold: no change.
    pub(crate) const ALPHA_FLOOR: f64 = 1e-15;
    /// An alpha above this multiple of s counts as infinite: the function contributes less than (s / alpha)^2 / 4 = 3e-17
    /// nats. It also limits the damping of Newton steps, and the growth of an alpha in one update of the full basis. A
    /// tenth or tenfold: no change.
    pub(crate) const INFINITE_RATIO: f64 = 1e8;
    /// Largest alpha / s of the Laplace and variational schemes: a function with a larger one gains less than
    /// [`Self::MIN_GAIN`] and is deleted. Halved or doubled: no change.
    pub(crate) const MAX_ALPHA_RATIO: f64 = 2e3;
    /// Precisions in the units of the fit, and parameters of their priors, lie between the inverse of this and this.
    pub(crate) const MAX_PRECISION: f64 = 1e100;
    /// Least fixed noise variance as a fraction of the variance of the targets: their own round-off is 1e-32 of it, and
    /// that of differences of sums of squares 1e-16.
    pub(crate) const MIN_NOISE: f64 = 1e-24;
    /// Largest weight of the prior on complexity: far below it no function is left.
    pub(crate) const MAX_COMPLEXITY: f64 = 1e6;
    /// Steps of any inner iteration, more than one that converges takes. Halved or doubled: no change.
    pub(crate) const MAX_STEPS: usize = 200;
    /// Rounds in a row without a higher objective after which a fit ends as stalled. Halved or doubled: no change.
    pub(crate) const MAX_IDLE_ROUNDS: usize = 4;
    /// Functions of one parallel piece, and rows of one in mRVM1: results do not depend on it but for round-off of the sums over rows.
    pub(crate) const PIECE: usize = 256;
    /// Additions of a function after which it stays out, which ends cycles that round-off causes. Halved or doubled: no
    /// change.
    pub(crate) const MAX_ENTRIES: u8 = 20;

    // Gains.

    /// Least gain in nats at which an inactive function counts as a candidate: the final accuracy of the evidence. A tenth:
    /// no change; tenfold: -0.3 to 0 nats.
    pub(crate) const MIN_GAIN: f64 = 1e-7;
    /// Least gain in nats of an exchange of functions. Halved: no change; doubled: up to 0.04 nats.
    pub(crate) const MIN_EXCHANGE_GAIN: f64 = 1e-3;
    /// Least gain in nats of a search or one of its trials. Halved: -2.2 to +1.7 nats, -2% steps; doubled: -2.1 to +5.0
    /// nats, +9% steps.
    pub(crate) const MIN_SEARCH_GAIN: f64 = 0.01;
    /// Gains that differ by less than this fraction are ties, and the lowest index wins: round-off must not choose the
    /// model. A tenth or tenfold: no change.
    pub(crate) const TIE: f64 = 1e-7;
    /// For a first model with the noise at its initial value. Free from the start, 85 nats were lost on the 1-D sinc with
    /// linear splines; fixed until nothing gains takes twice the steps for the same evidence. `gain`: halved: -8.7 to +10.5
    /// nats, +5% steps; doubled: -6.5 to +5.0 nats, +3% steps. `step`: halved: -5.2 to +7.7 nats, +2% steps; doubled: -6.5
    /// to +7.5 nats.
    pub(crate) const HELD_NOISE_EFFORT: Effort = Effort {
        gain: 1.0,
        step: 0.3,
        moves_noise: false,
        ..Self::COARSE_EFFORT
    };
    /// For a first model with free noise. `gain`: halved: -3.2 to +12.9 nats, +2% steps; doubled: -10.8 to +7.0 nats, -7%
    /// steps. `step`: halved: -6.5 to +10.0 nats, +13% steps; doubled: -13.0 to +2.8 nats, -3% steps.
    pub(crate) const COARSE_EFFORT: Effort = Effort {
        gain: 0.1,
        step: 0.05,
        tol: f64::INFINITY,
        moves_noise: true,
        rows_per_function: 0.0,
    };
    /// For a trial of a search that is close to the best model or above it. `gain`: halved: -4.0 to +6.5 nats, +4% steps.
    pub(crate) const TRIAL_EFFORT: Effort = Effort {
        gain: 0.01,
        step: 0.003,
        ..Self::COARSE_EFFORT
    };
    /// For a working set that a pass over the dictionary chose; single steps have to bring alphas to deletion. `step`:
    /// halved: -4.1 to +9.6 nats, +5% steps; doubled: -2.4 to +9.2 nats, +3% steps.
    pub(crate) const FINE_EFFORT: Effort = Effort {
        gain: Self::MIN_GAIN,
        step: 0.003,
        ..Self::COARSE_EFFORT
    };

    // Groups of columns: docs/decisions/0040.

    /// Least gain of a step beside a model that has not converged, in nats.
    pub(crate) const COARSE_GROUP_GAIN: f64 = 1e-2;
    /// Groups that are considered between two passes over all of them, until no gain exceeds this fraction of the largest. At 0.3 or 0.03
    /// four and two of 60 fits of random problems end at other optima, all with copies of columns or about as many columns as rows.
    pub(crate) const GROUP_WORKING_SET: usize = 50;
    pub(crate) const GROUP_GAIN_RATIO: f64 = 0.1;
    /// Groups whose terms one thread computes together.
    pub(crate) const GROUPS_TOGETHER: usize = 64;
    /// Passes over all groups at the first noise: where it is too low, groups without end gain.
    pub(crate) const FIRST_GROUP_PASSES: usize = 3;
    /// Precisions for which a gain is computed before the best is refined, and the most steps to refine it.
    pub(crate) const GROUP_GRID: usize = 48;
    pub(crate) const GROUP_REFINEMENTS: usize = 60;
    /// Eigenvalues of S below this fraction of the largest are round-off: the columns depend on one another.
    pub(crate) const GROUP_RANK: f64 = 1e-12;
    /// Columns of a group up to which Jacobi's rotations find the eigenvectors.
    pub(crate) const MAX_ROTATED: usize = 16;
    /// Largest joint step in the log of a precision, and halvings of a step.
    pub(crate) const MAX_GROUP_STEP: f64 = 2.0;
    pub(crate) const MAX_GROUP_HALVINGS: usize = 30;
    /// Length of a joint step below which it need not raise the objective.
    pub(crate) const CLOSE_GROUP_STEP: f64 = 1e-3;
    /// Most passes that lead to a model of no greater evidence.
    pub(crate) const MAX_IDLE_PASSES: usize = 3;

    // The noise and the precisions.

    /// Initial noise variance as a fraction of the variance of the targets: Tipping & Faul (2003), section 4, step 1.
    /// Sensitive where kernels are too wide. Halved: -12.1 to +7.9 nats, +10% steps; doubled: -25.4 to +37.4 nats, +10%
    /// steps.
    pub(crate) const INITIAL_NOISE: f64 = 0.1;
    /// Least estimate of the noise variance as a fraction of the variance of the targets. Noise-free data have no optimum
    /// above zero; the fit then ends at this floor with its own status. Halved: 0 to +65.3 nats; doubled: -65.3 to 0 nats.
    pub(crate) const NOISE_FLOOR: f64 = 1e-6;
    /// Alpha of every function at a start from the full basis. Halved: -12.1 to +12.4 nats, -16% steps; doubled: -12.4 to
    /// +25.0 nats, +18% steps.
    pub(crate) const INITIAL_ALPHA: f64 = 1.0;
    /// Largest factor by which a variational update changes E\[beta\]. If the noise grows too fast it absorbs the signal
    /// before the alphas have separated the functions. At 1.1: -12.1 to +12.4 nats; at 1.44: -12.4 to +25.0 nats. Halved:
    /// -12.1 to +12.4 nats; doubled: -12.4 to +25.0 nats, -3% steps.
    pub(crate) const MAX_BETA_GROWTH: f64 = 1.2;
    /// Full basis: a function whose alpha exceeds this multiple of its s may be pruned. Halved: 0 to +12.4 nats, -8% steps;
    /// doubled: +5% steps.
    pub(crate) const PRUNE_RATIO: f64 = 100.0;
    /// Largest change of a log hyperparameter in a Newton step, and of a ln alpha in a joint ascent of mRVM1. Halved: -0.1
    /// to +0.2 nats; doubled: 0 to +0.1 nats.
    pub(crate) const MAX_LN_CHANGE: f64 = 3.0;
    /// Tolerance on ln alpha of the active set between two passes over the dictionary. Updates of the full basis end there
    /// too. Halved: 0 to +0.1 nats; doubled: -0.1 to +0.1 nats.
    pub(crate) const LOOSE_TOL: f64 = 1e-2;
    /// Change of ln alpha or ln beta below which joint Newton steps take over from single steps and updates. Halved or
    /// doubled: no change.
    pub(crate) const COARSE_TOL: f64 = 0.1;
    /// Least damping of a Newton step after a failed attempt: less hardly changes the step. Halved: up to 0.04 nats;
    /// doubled: -0.1 to +0.1 nats.
    pub(crate) const MIN_DAMPING: f64 = 1e-2;
    /// Step lengths 1, 1/2, 1/4, ... that are tried along a Newton direction of the Laplace fixed point. Halved or doubled:
    /// no change.
    pub(crate) const MAX_HALVINGS: usize = 6;
    /// Josephy-Newton steps that are tried where Newton's method fails, in models of up to 100 functions.
    pub(crate) const JOSEPHY_TRIALS: usize = 32;

    // Additions.

    /// Least gain of a function that is added together with others, as a fraction of the first one's. Halved: -2.4 to +5.8
    /// nats; doubled: -0.8 to +2.3 nats.
    pub(crate) const JOINT_GAIN_RATIO: f64 = 0.03;
    /// Functions added between two passes over the dictionary where there is no working set. Halved: -1.7 to 0 nats;
    /// doubled: no change.
    pub(crate) const MAX_BLOCK_ADDITIONS: usize = 8;
    /// Least gain of a function of such a block, as a fraction of the first one's. At 0.03: -1.2 to +1.6 nats. Halved: 0 to +1.6
    /// nats; doubled: no change.
    pub(crate) const BLOCK_GAIN_RATIO: f64 = 0.1;
    /// Squared cosine from which two columns are duplicates; without the rule equal columns are both added. At 0.99: -0.1
    /// to +2.3 nats, and fits of 20,000 rows take 50 % longer. Halved: -0.1 to +2.3 nats; doubled: no change.
    pub(crate) const DUPLICATE_COS2: f64 = 0.999_999;

    // Working sets.

    /// Up to this many candidates the first working set is the whole dictionary. Halved: -19.5 to +6.6 nats, +5% steps;
    /// doubled: -1.8 to +1.2 nats, -2% steps.
    pub(crate) const MAX_WHOLE_DICTIONARY: usize = 512;
    /// Candidates in the first working set of a larger dictionary, and the most of each kind in later ones. Halved: -7.2 to
    /// +0.4 nats, +3% steps; doubled: -2.7 to +2.0 nats.
    pub(crate) const SAMPLE_SIZE: usize = 256;
    /// Least q^2 / s of a candidate that may gain once the others have moved; above 1 it gains. Halved: -0.3 to +0.6 nats;
    /// doubled: -1.3 to +0.3 nats.
    pub(crate) const MIN_NEAR_RATIO: f64 = 0.3;
    /// The first model is complete when no candidate gains more than this many nats. Halved: no change; doubled: 13 nats
    /// less on one problem.
    pub(crate) const MAX_INITIAL_GAIN: f64 = 2.0;
    /// Working sets of a fit, and linearisations on one of them. Most fits need two or three. Halved or doubled: no change.
    pub(crate) const MAX_WORKING_SETS: usize = 12;
    /// A working set of another likelihood than the Gaussian that gains more than this many nats is followed by one more, and in large
    /// models the fixed point is left for later. Without this a fit of 8000 rows of 50 inputs took 272 s instead of 37.
    pub(crate) const MAX_FINAL_GAIN: f64 = 0.5;
    /// Alternations of mode and alphas between two passes over the dictionary. Halved: -4.0 to 0 nats, -2% steps; doubled:
    /// no change.
    pub(crate) const MAX_ALTERNATIONS: usize = 3;
    /// Dictionaries in blocks: factor between the numbers of candidates of successive passes. Halved: 0 to +1.6 nats, +21%
    /// steps; doubled: no change.
    pub(crate) const STRIDE_FACTOR: usize = 8;

    // Starts from approximate data: see `docs/notebook/low-rank.md`.

    /// Rows per row of a subsample. Halved or doubled: no change.
    pub(crate) const SUBSAMPLE_RATIO: usize = 16;
    /// Largest noise precision, for targets of unit variance, of a start from low-rank features: their error has to be
    /// below the noise. A fit with a noise of 1/2000 of the variance ended 26 nats lower. Halved or doubled: no change.
    pub(crate) const MAX_LOW_RANK_BETA: f64 = 300.0;
    /// By how many nats the gain of a candidate on the rows may exceed its gain in features, or remain beside the final model of features
    /// or of a subsample. Without the test one problem of five inputs ended 700 nats lower. Halved or doubled: no change.
    pub(crate) const MAX_LOW_RANK_ERROR: f64 = 0.4;

    // Searches.

    /// Factor by which a second restart raises the initial noise precision. Kernels twice as wide as learned ones, 24 fits: +43 nats on average
    /// (at most +671), 0.88 of the error, +40 % time; learned and equal widths: -7.6 to +24 nats, +5 to +30 % time.
    pub(crate) const LOW_NOISE: f64 = 100.0;
    /// Largest model that a search restarts. Without the limit a fit of 250,000 rows and 750 functions took 79 s instead of 58, for 3
    /// of 67,000 nats and the same error.
    pub(crate) const MAX_SIZE_OF_RESTART: usize = 256;
    /// Least squared pivot, relative to its diagonal element, of a model that this restart may lead to.
    pub(crate) const MIN_PIVOT: f64 = 1e-9;
    /// Rows for each function of the first model of that restart. Doubled: -3 nats, 0.8 of the time.
    pub(crate) const MIN_ROWS_AT_LOW_NOISE: f64 = 10.0;
    /// Most functions that this model may have beyond those of the model before. Without the limit 20,000 rows and 800 centres took
    /// minutes. With twice as many functions and 60 more fits of 2000 rows of two inputs take twice as long; with 30 more, 24 fits of
    /// 600 rows lose 0 to 0.1 nats on average, and gain 7 with kernels 4.5 times as wide.
    pub(crate) const MAX_GROWTH_AT_LOW_NOISE: f64 = 64.0;
    /// Weight of the prior on complexity at which a restart frees the noise, before it raises a larger weight to its value. Of 60 problems with
    /// 20 spikes 5 ended far from them without this stage and none with it; at 1: 4.
    pub(crate) const FIRST_COMPLEXITY: f64 = 0.5;
    /// Part of the weight of the prior on complexity with which a fit continues from its first optimum, before it ends with all of it. Of 60
    /// problems with 20 spikes at 20 dB one ends far from them, with 0.7 five, without this stage six.
    pub(crate) const LESS_COMPLEXITY: f64 = 0.5;
    /// Functions that a trial deletes together. Halved: -3.9 to +6.0 nats, +13% steps; doubled: -2.2 to +5.6 nats, +14%
    /// steps.
    pub(crate) const NEIGHBOURHOOD_SIZE: usize = 4;
    /// Substitutes of each active function in a working set. Halved: -2.6 to +1.7 nats, +18% steps; doubled: -5.7 to +2.5
    /// nats, -2% steps.
    pub(crate) const SUBSTITUTES: usize = 12;
    /// Squared cosine of two columns above which one function can replace a part of the other. Halved or doubled: no
    /// change.
    pub(crate) const SUBSTITUTE_COS2: f64 = 0.04;
    /// Searches, each on a working set made for the model that the one before it found. Halved: -2.0 to 0 nats, +4% steps;
    /// doubled: 0 to +1.4 nats, +5% steps.
    pub(crate) const MAX_SEARCHES: usize = 2;
    /// Rows from which there is more than one search. Halved: 0 to +1.4 nats; doubled: -2.0 to 0 nats.
    pub(crate) const MIN_ROWS_OF_TWO_SEARCHES: f64 = 1280.0;
    /// Searches of a fit by the Laplace approximation. With 2, -0.2 to +12.4 nats, and up to 27 % more steps. Halved: -0.2
    /// to 0 nats, +2% steps; doubled: -2% steps.
    pub(crate) const MAX_LAPLACE_SEARCHES: usize = 3;
    /// Trials from the same model that are compared; the best one replaces it. Halved: -2.1 to +3.0 nats, +13% steps;
    /// doubled: -4.1 to +4.5 nats, +6% steps.
    pub(crate) const TRIAL_BATCH: usize = 4;
    /// Trials of one search per row. Halved: -1.2 to +1.3 nats, +3% steps; doubled: 0 to +0.6 nats.
    pub(crate) const TRIALS_PER_ROW: f64 = 0.04;
    /// Failed trials in a row that end a search. Halved: -3.7 to +0.2 nats, +6% steps; doubled: -0.4 to +4.5 nats.
    pub(crate) const MAX_FAILED_TRIALS: usize = 16;
    /// A trial this many nats below the best model is not refined. Halved: -0.9 to 0 nats, +2% steps; doubled: 0 to +1.6
    /// nats.
    pub(crate) const MAX_TRIAL_DEFICIT: f64 = 3.0;
    /// Exchanges, and merges with neighbours, that are tried for each active function. Halved: no change; doubled: -1.7 to
    /// +0.2 nats.
    pub(crate) const EXCHANGES_PER_FUNCTION: usize = 2;
    /// With fewer rows per active function an exchange search begins with backward elimination, and a first model of several outputs
    /// frees the noise. Halved: no change; doubled: -0.3 to 0 nats, +2% steps.
    pub(crate) const MIN_ROWS_PER_FUNCTION: f64 = 4.0;
    /// Largest model in which exchanges take a small part of the time of a Laplace fit. Halved or doubled: no change.
    pub(crate) const MAX_SIZE_FOR_EXCHANGES: usize = 20;

    // Several outputs, mRVM1 and the variational scheme.

    /// Grid step in ln alpha at which the slope of the shared evidence is evaluated: its terms are as wide as a logistic
    /// curve. At 0.25: no change, 29 % more time.
    pub(crate) const GRID_STEP: f64 = 0.5;
    /// Smallest scale of a ln alpha, for each class: a tenth of the scale of a function that the data determine. Halved: 0
    /// to +2.6 nats; doubled: no change.
    pub(crate) const MIN_SCALE: f64 = 0.05;
    /// The estimated distance to the maximum must be below this fraction of the tolerance, and the alphas within a round
    /// must converge to this fraction of that. Halved: +3% steps; doubled: -3% steps.
    pub(crate) const SAFETY: f64 = 0.1;

    /// Searches of a fit of `n` rows. At N = 1000 a second one takes a fifth of the time of a fit for 0.7 nats on average; from
    /// N = 2000 on it gains one to two nats.
    pub(crate) fn searches(n: f64) -> usize {
        if n < Self::MIN_ROWS_OF_TWO_SEARCHES {
            1
        } else {
            Self::MAX_SEARCHES
        }
    }

    /// Trials of one search of a fit of `n` rows: a fraction of the cost of a pass over the dictionary. Fits without this
    /// limit take 5 to 12 times as long.
    pub(crate) fn trials(n: f64) -> usize {
        // Between 30 and 48, so the conversion is exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let trials = (Self::TRIALS_PER_ROW * n).clamp(30.0, 48.0) as usize;
        trials
    }
}
