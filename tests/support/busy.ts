/** What a machine that has more to do than cores changes for a test. */

/** How many times slower than a quiet machine this one is (scripts/slowness.mjs); 1 where the tests were started without it. */
export const slowness = Math.max(1, Number(process.env['TOKENHOUSE_TEST_SLOWNESS'] ?? 1));

/**
 * Sends again what was refused with 429, as clients do: a large body is given half a minute of a thread that
 * yields to everything else, and beside other tests that may not be enough. The fifth answer stands, whatever it is.
 */
export async function sendAgainWhenBusy<T extends { readonly status: number }>(send: () => Promise<T>): Promise<T> {
  for (let sent = 1; ; sent++) {
    const answer = await send();
    if (answer.status !== 429 || sent === 5) return answer;
  }
}
