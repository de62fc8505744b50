import Type from 'typebox';

import type { ErrorBody } from '../../platform/errors.ts';

/**
 * What the published API description (`GET /openapi.json`) says of one endpoint of a family, made of the very schemas that
 * its requests are checked with, so that the two cannot differ.
 */
export interface EndpointDescription {
  /** Unique over the document; what generators of clients call the method. */
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly request: Type.TSchema;
  /** A whole answer. */
  readonly answer: Type.TSchema;
  /** What stands behind `data:` in the events of a stream; absent where there are no streams. */
  readonly events?: EventsDescription;
  readonly error: ErrorForm;
  /** Headers of this family beside those that every endpoint reads. */
  readonly headers?: readonly HeaderDescription[];
  /** Schemas that the document shows once under a name, with what their fields mean. Every field of a request has a text. */
  readonly named: Readonly<Record<string, NamedSchema>>;
  readonly examples: readonly RequestExample[];
}

export interface EventsDescription {
  readonly description: string;
  /** Of one event; `error` is the body of an error answer of this family. */
  schema(error: Type.TObject): Type.TSchema;
}

export interface HeaderDescription {
  readonly name: string;
  readonly description: string;
  readonly schema: Type.TSchema;
}

/** How an error stands in the body of an answer. */
export interface ErrorForm {
  /** Of its schema in the document. */
  readonly name: string;
  schema(error: Type.TObject): Type.TObject;
  /** As the dialect prints it. */
  print(error: ErrorBody): string;
}

/** Specification §7.1. */
export const plainError: ErrorForm = {
  name: 'Error',
  schema: (error) => Type.Object({ error }),
  print: (error) => JSON.stringify({ error }),
};

/** For examples of answers that match a schema. */
export const citySchema = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 40 }, country: { type: 'string', maxLength: 40 } },
  required: ['city', 'country'],
} as const;

/** What a request needs of a model's card. */
export type Need = 'streaming' | 'tools' | 'jsonSchema' | 'regex' | 'grammar' | 'vision' | 'reasoning';

/** A request that works as it stands, with a model that has what it needs. */
export interface RequestExample {
  readonly name: string;
  readonly summary: string;
  readonly needs: readonly Need[];
  body(model: string): Readonly<Record<string, unknown>>;
}

export interface NamedSchema {
  readonly schema: Type.TSchema;
  readonly description: string | undefined;
  /** By the names of fields; those of objects inside by path, `reasoning.effort`. */
  readonly fields: Readonly<Record<string, string>>;
}

/** Names a schema. One whose field has no text does not compile. */
export const named = <Schema extends Type.TSchema>(
  schema: Schema,
  fields: FieldTexts<Type.Static<Schema>>,
  description?: string,
): NamedSchema => ({ schema, fields, description });

type FieldTexts<Value> = Readonly<Record<FieldsOf<Value> & string, string>> &
  Readonly<Record<`${string}.${string}`, string>>;
type FieldsOf<Value> = Value extends readonly unknown[] ? never : Value extends object ? keyof Value : never;

/** Names a schema whose texts stand in itself, as they do in those of answers. */
export const self = (schema: Type.TSchema): NamedSchema => ({ schema, fields: {}, description: undefined });
