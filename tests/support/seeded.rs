//! Random cases that can be had again.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// `cases` random cases, or as many as `PROPTEST_CASES` says, from the seed in `PROPTEST_RNG_SEED` or a new one.
///
/// Prints how to have the same cases again, which libtest shows if the test fails. So no file needs to keep them.
pub fn seeded(cases: u32) -> Config {
    // What the environment says is in the default already.
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    let seed = match default.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(cases),
    };
    println!("to repeat: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..default }
}
