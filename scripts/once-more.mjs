// Retries the few test files that failed because of a busy machine, and names them.

/** Maximum failures of the first run, as files or groups that failed together; more are not a coincidence. */
const failuresMax = 3;

/**
 * Runs test files; with `again`, reruns failed ones alone. `run(files, concurrency)` resolves with `code` and `failed`, lists of
 * files that failed together. Resolves with the final code, and the files that passed only at the second try.
 */
export async function runOnceMore(run, files, concurrency, again) {
  const first = await run(files, concurrency);
  const mayRepeat = again && first.code !== 0 && first.failed.length > 0 && first.failed.length <= failuresMax;
  if (!mayRepeat) return { code: first.code, unsteady: [] };
  const failed = first.failed.flat();
  const second = await run(failed, 1);
  return { code: second.code, unsteady: second.code === 0 ? failed : [] };
}
