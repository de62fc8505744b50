// A second try for the few test files that a busy machine made fail, and their names.

/** What may fail at its first try, files or groups of files that broke down together: more of them is no accident. */
const failuresMax = 3;

/**
 * Runs test files; with `again`, those that failed once more, alone. `run(files, concurrency)` resolves with `code` and
 * `failed`, lists of files that failed together. Resolves with the code that counts, and the files that passed at the second try only.
 */
export async function runOnceMore(run, files, concurrency, again) {
  const first = await run(files, concurrency);
  const mayRepeat = again && first.code !== 0 && first.failed.length > 0 && first.failed.length <= failuresMax;
  if (!mayRepeat) return { code: first.code, unsteady: [] };
  const failed = first.failed.flat();
  const second = await run(failed, 1);
  return { code: second.code, unsteady: second.code === 0 ? failed : [] };
}
