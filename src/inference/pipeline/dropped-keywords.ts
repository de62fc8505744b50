import { eachSubschema, isRecord } from '../constraints/schema-keywords.ts';

/** §4.2.3(3): these keywords are dropped from a constraint. Servers that support fewer keywords than we do refuse some of them. */
const dropped: ReadonlySet<string> = new Set(['if', 'then', 'else', 'not', 'uniqueItems', 'multipleOf', 'format']);

/** Returns the schema without the keywords that are not enforced. Everything else in it (enums, defaults, examples) is unchanged. */
export function withoutDroppedKeywords(schema: unknown): unknown {
  // A schema in several places, as one that references name, remains a single object.
  const made = new Map<unknown, unknown>();
  const without = (each: unknown): unknown => {
    if (!isRecord(each)) return each;
    const known = made.get(each);
    if (known !== undefined) return known;
    const kept = Object.fromEntries(Object.entries(each).filter(([keyword]) => !dropped.has(keyword)));
    const found = eachSubschema(kept, '', without);
    made.set(each, found);
    return found;
  };
  return without(schema);
}
