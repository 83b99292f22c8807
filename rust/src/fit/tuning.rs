//! Constants of the searches and loops of this folder. Evidence gains are in nats, alphas in units of unit-norm columns and
//! targets of unit variance.

/// How far a loop continues before it returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Functions that gain less than this many nats are not added.
    pub(crate) gain: f64,
    /// Re-estimations of a single alpha that gain less than this many nats are left to the joint steps.
    pub(crate) step: f64,
    /// Joint steps continue until every |change in ln alpha| and |change in ln beta| is below this; infinite: no joint steps.
    pub(crate) tol: f64,
}

/// Constants of the searches and loops.
pub(crate) struct Tuning;

impl Tuning {
    // Limits of the arithmetic.

    pub(crate) const ROUNDING: f64 = 1e-13;
    pub(crate) const MAX_ROUND_OFF: f64 = 1e-10;
    pub(crate) const MIN_ORTHOGONAL_PART: f64 = 1e-11;
    pub(crate) const MIN_APPROXIMATE_PART: f64 = 1e-5;
    pub(crate) const MIN_RELIABLE_GAMMA: f64 = 1e-4;
    pub(crate) const ALPHA_FLOOR: f64 = 1e-15;
    pub(crate) const INFINITE_RATIO: f64 = 1e8;
    pub(crate) const MAX_ALPHA_RATIO: f64 = 2e3;
    pub(crate) const MAX_PRECISION: f64 = 1e100;
    pub(crate) const MAX_STD: f64 = 1e152;
    pub(crate) const MIN_NOISE: f64 = 1e-24;
    pub(crate) const MAX_STEPS: usize = 200;
    pub(crate) const MAX_PLATEAU: usize = 50;
    pub(crate) const MAX_IDLE_ROUNDS: usize = 4;
    pub(crate) const MAX_ENTRIES: u8 = 20;

    // Gains.

    pub(crate) const MIN_GAIN: f64 = 1e-7;
    pub(crate) const MIN_REPORTED_GAIN: f64 = 1e-6;
    pub(crate) const MIN_EXCHANGE_GAIN: f64 = 1e-3;
    pub(crate) const MIN_SEARCH_GAIN: f64 = 0.01;
    pub(crate) const TIE: f64 = 1e-7;
    pub(crate) const HELD_NOISE_EFFORT: Effort = Effort {
        gain: 1.0,
        step: 0.3,
        tol: f64::INFINITY,
    };
    pub(crate) const COARSE_EFFORT: Effort = Effort {
        gain: 0.1,
        step: 0.05,
        tol: f64::INFINITY,
    };
    pub(crate) const TRIAL_EFFORT: Effort = Effort {
        gain: 0.01,
        step: 0.003,
        tol: f64::INFINITY,
    };
    pub(crate) const FINE_EFFORT: Effort = Effort {
        gain: Self::MIN_GAIN,
        step: 0.003,
        tol: f64::INFINITY,
    };

    // Noise and precisions.

    pub(crate) const INITIAL_NOISE: f64 = 0.1;
    pub(crate) const NOISE_FLOOR: f64 = 1e-6;
    pub(crate) const NOISE_STAGE: f64 = 10.0;
    pub(crate) const MIN_NOISE_CHANGE: f64 = 0.1;
    pub(crate) const INITIAL_ALPHA: f64 = 1.0;
    pub(crate) const MAX_ALPHA_GROWTH: f64 = 1e3;
    pub(crate) const MAX_BETA_GROWTH: f64 = 1.2;
    pub(crate) const PRUNE_RATIO: f64 = 100.0;
    pub(crate) const MAX_LN_CHANGE: f64 = 3.0;
    pub(crate) const UPDATE_TOL: f64 = 1e-3;
    pub(crate) const LOOSE_TOL: f64 = 1e-2;
    pub(crate) const COARSE_TOL: f64 = 0.1;
    pub(crate) const MIN_DAMPING: f64 = 1e-2;
    pub(crate) const MAX_DAMPING: f64 = 1e6;
    pub(crate) const MAX_HALVINGS: usize = 6;

    // Additions.

    pub(crate) const MAX_JOINT_ADDITIONS: usize = 32;
    pub(crate) const JOINT_GAIN_RATIO: f64 = 0.03;
    pub(crate) const MAX_BLOCK_ADDITIONS: usize = 8;
    pub(crate) const BLOCK_GAIN_RATIO: f64 = 0.1;
    pub(crate) const DUPLICATE_COS2: f64 = 0.999_999;

    // Working sets.

    pub(crate) const MAX_WHOLE_DICTIONARY: usize = 512;
    pub(crate) const SAMPLE_SIZE: usize = 256;
    pub(crate) const LAPLACE_SAMPLE_SIZE: usize = 128;
    pub(crate) const MIN_NEAR_RATIO: f64 = 0.3;
    pub(crate) const MAX_INITIAL_GAIN: f64 = 2.0;
    pub(crate) const MAX_WORKING_SETS: usize = 12;
    pub(crate) const MAX_ALTERNATIONS: usize = 3;
    pub(crate) const STRIDE_FACTOR: usize = 8;

    // Starts from approximate data.

    pub(crate) const SUBSAMPLE_RATIO: usize = 16;
    pub(crate) const MIN_SUBSAMPLE_ROWS: usize = 1 << 14;
    pub(crate) const MAX_SUBSAMPLE_GAIN: f64 = 0.3;
    pub(crate) const MAX_LOW_RANK_BETA: f64 = 300.0;
    pub(crate) const LOW_RANK_TEST_SIZE: usize = 64;
    pub(crate) const MAX_LOW_RANK_ERROR: f64 = 0.4;
    pub(crate) const MAX_LOW_RANK_GAIN: f64 = 1.0;

    // Searches.

    pub(crate) const NEIGHBOURHOOD_SIZE: usize = 4;
    pub(crate) const SUBSTITUTES: usize = 12;
    pub(crate) const SUBSTITUTE_COS2: f64 = 0.04;
    pub(crate) const MAX_SEARCHES: usize = 2;
    pub(crate) const TRIAL_BATCH: usize = 4;
    pub(crate) const MAX_FAILED_TRIALS: usize = 16;
    pub(crate) const MAX_TRIAL_DEFICIT: f64 = 3.0;
    pub(crate) const MAX_TRIAL_STEPS: usize = 20_000;
    pub(crate) const EXCHANGES_PER_FUNCTION: usize = 2;
    pub(crate) const RESTARTS: usize = 3;
    pub(crate) const MIN_ROWS_PER_FUNCTION: f64 = 4.0;
    pub(crate) const MAX_SIZE_FOR_EXCHANGES: usize = 20;
    pub(crate) const JOSEPHY_TRIALS: usize = 32;

    // mRVM1 and the variational scheme.

    pub(crate) const MIN_SCALE: f64 = 0.05;
    pub(crate) const GRID_STEP: f64 = 0.25;
    pub(crate) const STRIDE_DECAY: f64 = 0.8;
    pub(crate) const SAFETY: f64 = 0.1;

    /// Searches of a fit of `n` rows.
    pub(crate) fn searches(n: f64) -> usize {
        const MIN_ROWS: f64 = 1280.0;
        if n < MIN_ROWS { 1 } else { Self::MAX_SEARCHES }
    }

    /// Trials of one search of a fit of `n` rows: a fraction of the cost of a pass over the dictionary. Fits without this
    /// limit take 5 to 12 times as long.
    pub(crate) fn trials(n: f64) -> usize {
        const PER_ROW: f64 = 0.04;
        // Between 30 and 48, so the conversion is exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let trials = (PER_ROW * n).clamp(30.0, 48.0) as usize;
        trials
    }
}
