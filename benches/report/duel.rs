//! The index against the best of the other designs, by one key.

use support::designs::{Cached, Design};
use support::every_key::Situation;
use support::figures::Figure;

/// Nanoseconds of a lookup for one thread, million lookups per second for two.
pub(crate) struct Duel<'a> {
    pub(crate) own: f64,
    pub(crate) best: f64,
    /// The best of the others.
    pub(crate) peer: &'a str,
    /// How many times as fast as the best of the others the index is.
    pub(crate) advantage: f64,
}

impl<'a> Duel<'a> {
    pub(crate) fn of(figures: &'a [Figure], n: usize, key: &str, situation: Situation) -> Option<Self> {
        let what = situation.what(key);
        let (mut own, mut best): (_, Option<&Figure>) = (None, None);
        let speed = |value: f64| if situation.threads == 1 { 1.0 / value } else { value };
        for figure in figures.iter().filter(|figure| figure.n == n && figure.what == what) {
            if figure.who == Cached::NAME {
                own = Some(figure.value);
            } else if best.is_none_or(|best| speed(figure.value) > speed(best.value)) {
                best = Some(figure);
            }
        }
        let (own, best) = own.zip(best)?;
        let advantage = speed(own) / speed(best.value);
        Some(Self { own, best: best.value, peer: &best.who, advantage })
    }

    pub(crate) fn times(&self) -> String {
        times(self.advantage)
    }
}

/// A ratio.
pub(crate) fn times(ratio: f64) -> String {
    if ratio < 2.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") }
}

/// From the least to the greatest of these ratios.
pub(crate) fn span(ratios: impl Iterator<Item = f64>) -> String {
    let (least, most) =
        ratios.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), it| (least.min(it), most.max(it)));
    let (least, most) = (times(least), times(most));
    if least == most { least } else { format!("{least} to {most}") }
}
