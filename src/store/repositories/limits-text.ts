type Limits = Readonly<Record<string, unknown>>;

/** The stored limits of a key or an account after a change: null removes a limit, omitted ones stay; the same in what is nested. */
export function limitsText(before: string | null, changed: Limits): string | null {
  const next = merged(before === null ? {} : (JSON.parse(before) as Limits), changed);
  return Object.keys(next).length === 0 ? null : JSON.stringify(next);
}

function merged(known: Limits, changed: Limits): Limits {
  const next = new Map(Object.entries(known));
  for (const [name, change] of Object.entries(changed)) {
    const value = isNested(change) ? merged(nestedIn(next.get(name)), change) : change;
    if (value === null || (isNested(value) && Object.keys(value).length === 0)) next.delete(name);
    else next.set(name, value);
  }
  return Object.fromEntries(next);
}

const nestedIn = (value: unknown): Limits => (isNested(value) ? value : {});

const isNested = (value: unknown): value is Limits =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
