// A second try for the few test files that a busy machine made fail, and their names.

/** Files that may fail at their first try: more of them is no accident. */
const filesMax = 3;

/**
 * Runs test files; with `again`, those that failed once more, alone. `run(files, concurrency)` resolves with `code` and
 * `failed`, the files. Resolves with the code that counts, and the files that passed at the second try only.
 */
export async function runOnceMore(run, files, concurrency, again) {
  const first = await run(files, concurrency);
  const mayRepeat = again && first.code !== 0 && first.failed.length > 0 && first.failed.length <= filesMax;
  if (!mayRepeat) return { code: first.code, unsteady: [] };
  const second = await run(first.failed, 1);
  return { code: second.code, unsteady: second.code === 0 ? first.failed : [] };
}
