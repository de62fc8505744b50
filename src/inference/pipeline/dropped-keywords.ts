import { eachSubschema, isRecord } from '../constraints/schema-keywords.ts';

/** §4.2.3(3): these keywords are dropped from a constraint. Servers that know fewer keywords than we do refuse some of them. */
const dropped: ReadonlySet<string> = new Set(['if', 'then', 'else', 'not', 'uniqueItems', 'multipleOf', 'format']);

/** The schema without the keywords that are not enforced. Everything else in it (enums, defaults, examples) stays as it is. */
export function withoutDroppedKeywords(schema: unknown): unknown {
  if (!isRecord(schema)) return schema;
  const kept = Object.fromEntries(Object.entries(schema).filter(([keyword]) => !dropped.has(keyword)));
  return eachSubschema(kept, '', withoutDroppedKeywords);
}
