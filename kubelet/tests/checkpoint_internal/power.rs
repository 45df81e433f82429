//! A power loss at any step.

use super::*;

#[test]
fn a_loss_of_power_at_any_step_takes_nothing_that_was_acknowledged_and_brings_nothing_back() {
    let history = history();
    let mut tried = 0;
    for steps in 0.. {
        let platter = Arc::default();
        let mut left = 0..steps;
        let no_power = || io::Error::other("no power");
        let disk = FakeDisk::new(&platter, move |_| left.next().map(drop).ok_or_else(no_power));
        let mut keeper = Keeper::new(disk, Which::Annotated);
        let nothing = Pods::new();
        // The last acknowledged state, and the states begun since.
        let mut acknowledged = &nothing;
        let mut begun: Vec<&Pods> = Vec::new();
        for (snapshot, pods) in &history {
            begun.push(pods);
            if !keeper.pass(snapshot.clone(), true).is_empty() {
                break;
            }
            assert_eq!(keeper.status().wrong, 0);
            acknowledged = pods;
            begun.clear();
        }
        let uids: BTreeSet<_> = history.iter().flat_map(|(_, pods)| pods.keys()).collect();
        let platter = platter.lock().unwrap();
        for directory in platter.after_a_loss_of_power() {
            let found = found(&directory);
            for uid in &uids {
                let allowed: Vec<_> = [acknowledged]
                    .into_iter()
                    .chain(begun.iter().copied())
                    .map(|pods| pods.get(*uid))
                    .collect();
                assert!(
                    allowed.contains(&found.get(*uid)),
                    "{uid} after {steps} steps: {:?}, not of {allowed:?}",
                    found.get(*uid)
                );
            }
            tried += 1;
        }
        if begun.is_empty() {
            assert!(tried > 500, "{tried} states in {steps} steps");
            return;
        }
    }
}
