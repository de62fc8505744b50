/** The stored limits of a key or an account after a change: null removes a limit, omitted ones stay. */
export function limitsText(before: string | null, changed: Readonly<Record<string, unknown>>): string | null {
  const known = before === null ? {} : (JSON.parse(before) as Readonly<Record<string, unknown>>);
  const next = Object.entries({ ...known, ...changed }).filter(([, value]) => value !== null);
  return next.length === 0 ? null : JSON.stringify(Object.fromEntries(next));
}
