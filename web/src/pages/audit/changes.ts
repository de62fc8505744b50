/** What a change has changed, field by field. */
export interface FieldChange {
  /** Such as `billing.country`; empty: the whole of it. */
  readonly field: string;
  /** undefined: it was not there. */
  readonly before: string | undefined;
  readonly after: string | undefined;
  readonly isSame: boolean;
}

/** Fields that differ come first, both in the order in which they were written. */
export function changesOf(before: unknown, after: unknown): readonly FieldChange[] {
  const [was, is] = [new Map(fieldsOf(before)), new Map(fieldsOf(after))];
  const isBoth = was.size > 0 && is.size > 0;
  const changes = [...new Set([...was.keys(), ...is.keys()])].map((field) => ({
    field,
    before: was.get(field),
    after: is.get(field),
    isSame: isBoth && was.get(field) === is.get(field),
  }));
  return [...changes.filter(({ isSame }) => !isSame), ...changes.filter(({ isSame }) => isSame)];
}

/** Deeper values stay JSON: what an entry has is two levels deep at most. */
const depthMax = 3;

function fieldsOf(value: unknown, path = '', depth = 0): readonly (readonly [string, string])[] {
  if (value === null || value === undefined) return path === '' ? [] : [[path, '–']];
  if (typeof value === 'object' && !Array.isArray(value) && depth < depthMax)
    return Object.entries(value).flatMap(([name, inner]) =>
      fieldsOf(inner, path === '' ? name : `${path}.${name}`, depth + 1),
    );
  return [[path, typeof value === 'string' ? value : JSON.stringify(value)]];
}

/** The page of a thing that still may be there, by the form of its id; undefined: it has none. */
export function pageOf(target: string): string | undefined {
  if (/^key_/.test(target)) return `/keys/${target}`;
  if (/^whe_/.test(target)) return `/alerts/webhooks/${target}`;
  if (/^alrt_/.test(target)) return '/alerts';
  if (/^inv_|^[0-9a-f]{32}$/.test(target)) return '/team';
  return undefined;
}
