/** Building blocks of operation schemas. */
import Type from 'typebox';
import type { Static, TNull, TProperties, TSchema, TUnion } from 'typebox';

/** The type of a value of this schema; optional fields may also be `undefined`. */
export type Input<Schema extends TSchema> = Frozen<Static<Schema>>;

type Frozen<Value> = Value extends readonly (infer Item)[]
  ? readonly Frozen<Item>[]
  : Value extends object
    ? {
        readonly [Name in keyof Value]: Frozen<Value[Name]> | (object extends Pick<Value, Name> ? undefined : never);
      }
    : Value;

export const text = Type.String();
export const texts = Type.Array(text);
/** An amount of a money movement, as a decimal string. */
export const microcents = Type.String({ pattern: '^[0-9]{1,18}$' });
/** Milliseconds since 1970. */
export const time = Type.Integer();
/** Milliseconds from now, by the clock of the process that makes the change. */
export const duration = Type.Integer({ minimum: 1 });

/** The account's id; omitted: the only account. */
export const ofAccount = { accountId: Type.Optional(text) };

export const orNull = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

export const eachOrNull = <Fields extends TProperties>(fields: Fields) =>
  Object.fromEntries(Object.entries(fields).map(([name, schema]) => [name, orNull(schema)])) as unknown as {
    [Name in keyof Fields]: TUnion<[Fields[Name], TNull]>;
  };
