//! Random cases that can be repeated.
#![allow(unreachable_pub, reason = "unit tests include this file, too")]

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// `cases` random cases, or `PROPTEST_CASES`, from the seed in `PROPTEST_RNG_SEED` or a new one.
///
/// Prints how to repeat the cases; libtest shows that if the test fails. So they need not be stored in a
/// file.
pub fn seeded(cases: u32) -> Config {
    // The default already contains the environment's values.
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    let seed = match default.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(cases),
    };
    println!("to repeat: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..default }
}
