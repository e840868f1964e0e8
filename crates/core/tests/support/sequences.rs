//! How many sequences a search over states stands for: what both searches over unsigned acts print.

/// How many sequences of up to `depth` acts lead on from the first state; `leads_to` has, for each state, those after it.
pub(crate) fn sequences<'r>(
    leads_to: impl Fn(usize) -> &'r [usize],
    states: usize,
    depth: usize,
) -> u128 {
    let mut ways = vec![0_u128; states];
    ways[0] = 1;
    let mut all = 0;
    for _ in 0..depth {
        let mut next = vec![0_u128; states];
        for (at, count) in ways.iter().enumerate().filter(|(_, count)| **count > 0) {
            for to in leads_to(at) {
                next[*to] += count;
            }
        }
        all += next.iter().sum::<u128>();
        ways = next;
    }
    all
}
