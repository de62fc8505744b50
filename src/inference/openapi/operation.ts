import type { TSchema } from 'typebox';

import type { ErrorForm, NamedSchema } from '../dialects/description.ts';
import type { Exposure } from './errors.ts';

/** An operation that belongs to no API family. */
export interface PlainOperation {
  readonly path: string;
  readonly method: 'get' | 'post' | 'delete';
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly key: 'required' | 'optional' | 'unused';
  readonly exposure: Exposure;
  readonly error: ErrorForm;
  readonly parameters?: readonly ParameterDescription[];
  readonly body?: { readonly contentType: string; readonly schema: TSchema };
  readonly answers: readonly AnswerDescription[];
  readonly named?: Readonly<Record<string, NamedSchema>>;
}

export interface ParameterDescription {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly description: string;
  readonly schema: TSchema;
}

export interface AnswerDescription {
  readonly status: number;
  readonly description: string;
  readonly contentType?: string;
  readonly schema?: TSchema;
  readonly headers?: Readonly<Record<string, string>>;
}
