/** Maximum length of a list. */
const pageMax = 1000;

export function pageOf(limit: number | undefined): number {
  return Math.max(1, Math.min(Math.trunc(limit ?? 100), pageMax));
}
