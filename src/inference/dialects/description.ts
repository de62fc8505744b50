import Type from 'typebox';

import type { ErrorBody } from '../../platform/errors.ts';

/**
 * The published API description (`GET /openapi.json`) of one endpoint of a family, generated from the same schemas that check its requests,
 * so that the two cannot differ.
 */
export interface EndpointDescription {
  /** Unique within the document; client generators name the method after it. */
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly request: Type.TSchema;
  /** The schema of a whole answer. */
  readonly answer: Type.TSchema;
  /** The data of a stream's events; absent for families without streams. */
  readonly events?: EventsDescription;
  readonly error: ErrorForm;
  /** Headers of this family besides those of every endpoint. */
  readonly headers?: readonly HeaderDescription[];
  /** Schemas that the document lists once under a name, with descriptions of their fields. Every field of a request has one. */
  readonly named: Readonly<Record<string, NamedSchema>>;
  readonly examples: readonly RequestExample[];
}

export interface EventsDescription {
  readonly description: string;
  /** Returns the schema of one event; `error` is the body of an error answer of this family. */
  schema(error: Type.TObject): Type.TSchema;
}

export interface HeaderDescription {
  readonly name: string;
  readonly description: string;
  readonly schema: Type.TSchema;
}

/** How an answer's body contains an error. */
export interface ErrorForm {
  /** Name of its schema in the document. */
  readonly name: string;
  schema(error: Type.TObject): Type.TObject;
  /** Prints the error as the dialect encodes it. */
  print(error: ErrorBody): string;
}

/** The plain envelope (specification §7.1). */
export const plainError: ErrorForm = {
  name: 'Error',
  schema: (error) => Type.Object({ error }),
  print: (error) => JSON.stringify({ error }),
};

/** A schema for examples of structured answers. */
export const citySchema = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 40 }, country: { type: 'string', maxLength: 40 } },
  required: ['city', 'country'],
} as const;

/** Capabilities of a model's card that a request needs. */
export type Need = 'streaming' | 'tools' | 'jsonSchema' | 'regex' | 'grammar' | 'vision' | 'reasoning';

/** A request that works unchanged on a model with the needed capabilities. */
export interface RequestExample {
  readonly name: string;
  readonly summary: string;
  readonly needs: readonly Need[];
  body(model: string): Readonly<Record<string, unknown>>;
}

export interface NamedSchema {
  readonly schema: Type.TSchema;
  readonly description: string | undefined;
  /** Descriptions by field name; by path for nested objects, such as `reasoning.effort`. */
  readonly fields: Readonly<Record<string, string>>;
}

/** Names a schema. A field without a description does not compile. */
export const named = <Schema extends Type.TSchema>(
  schema: Schema,
  fields: FieldTexts<Type.Static<Schema>>,
  description?: string,
): NamedSchema => ({ schema, fields, description });

type FieldTexts<Value> = Readonly<Record<FieldsOf<Value> & string, string>> &
  Readonly<Record<`${string}.${string}`, string>>;
type FieldsOf<Value> = Value extends readonly unknown[] ? never : Value extends object ? keyof Value : never;

/** Names a schema that contains its own descriptions, as schemas of answers do. */
export const self = (schema: Type.TSchema): NamedSchema => ({ schema, fields: {}, description: undefined });
