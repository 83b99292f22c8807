//! How many random cases a test draws.

use proptest::test_runner::Config;

/// `n` cases, or as many as `PROPTEST_CASES` says. `PROPTEST_RNG_SEED` draws the same ones each time.
pub(crate) fn cases(n: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = n;
    }
    config
}
