//! Lists in pages: at most 200 items, and a cursor that is the key of the last one.

use crate::call::Call;
use crate::people::wire::PageBody;
use crate::problem::Problem;

/// The most items of a page.
pub(crate) const PAGE_MAX: usize = 200;

/// The parameters every list takes.
pub(crate) const PAGE_QUERY: &[&str] = &["after", "limit"];

/// How many items are asked for.
pub(crate) fn limit(call: &Call) -> Result<usize, Problem> {
    let limit = usize::try_from(call.number("limit", 50)?).unwrap_or(PAGE_MAX);
    Ok(limit.clamp(1, PAGE_MAX))
}

/// Where the page begins: after this key.
pub(crate) fn after(call: &Call) -> &str {
    call.query.get("after").map_or("", String::as_str)
}

/// The same for a list whose keys are numbers, newest first.
pub(crate) fn before(call: &Call) -> Result<i64, Problem> {
    call.number("after", i64::MAX)
}

/// A page of what was read: one more than asked for tells that there is another page.
pub(crate) fn page<R, T>(
    mut rows: Vec<R>,
    limit: usize,
    key: impl Fn(&R) -> String,
    body: impl Fn(R) -> T,
) -> PageBody<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(key) } else { None };
    PageBody { items: rows.into_iter().map(body).collect(), next }
}

/// How many rows to read for a page.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_next_one_only_if_there_is_one() {
        let pages = |rows: Vec<u32>, limit| page(rows, limit, u32::to_string, |row| row * 10);
        assert_eq!(
            pages(vec![1, 2, 3], 2),
            PageBody { items: vec![10, 20], next: Some("2".into()) }
        );
        assert_eq!(pages(vec![1, 2], 2), PageBody { items: vec![10, 20], next: None });
        assert_eq!(pages(vec![], 2), PageBody { items: vec![], next: None });
    }
}
