import Type from 'typebox';

import { self } from '../dialects/description.ts';
import type { ErrorForm } from '../dialects/description.ts';
import type { ParameterDescription, PlainOperation } from './operation.ts';

/** `/v1/files` (contracts §1.4): one store, two forms of answers; the header `anthropic-version` selects the second one. */
const text = (description: string) => Type.String({ description });
const time = (description: string) => Type.String({ format: 'date-time', description });
const seconds = (description: string) => Type.Integer({ description: `${description}, in seconds since 1970.` });

const purposes = ['assistants', 'batch', 'evals', 'fine-tune', 'user_data', 'vision'];

const openAiFile = Type.Object(
  {
    id: text('The value for `file_id` in requests.'),
    object: Type.Literal('file', { description: 'Always `file`.' }),
    bytes: Type.Integer({ description: 'Its length.' }),
    created_at: seconds('When it was uploaded'),
    expires_at: Type.Optional(seconds('When it is deleted')),
    filename: text('Its name, without path separators.'),
    purpose: Type.Enum(purposes, { description: 'As it was uploaded.' }),
    status: Type.Literal('processed', { description: 'Always `processed`.' }),
  },
  { description: 'A file.' },
);

const anthropicFile = Type.Object(
  {
    id: text('The value for `file_id` in requests.'),
    type: Type.Literal('file', { description: 'Always `file`.' }),
    filename: text('Its name, without path separators.'),
    mime_type: text('Media type, detected from its bytes.'),
    size_bytes: Type.Integer({ description: 'Its length.' }),
    created_at: time('When it was uploaded.'),
    downloadable: Type.Literal(true, { description: 'Always true.' }),
    expires_at: Type.Union([Type.String({ format: 'date-time' }), Type.Null()], { description: 'When it is deleted.' }),
  },
  { description: 'A file, with `anthropic-version`.' },
);

const file = Type.Union([openAiFile, anthropicFile]);

const idOrNull = (description: string) => Type.Union([Type.String(), Type.Null()], { description });
const hasMore = Type.Boolean({ description: 'Whether another page follows.' });

const openAiList = Type.Object(
  {
    object: Type.Literal('list', { description: 'Always `list`.' }),
    data: Type.Array(openAiFile, { description: 'The files.' }),
    first_id: text('Id of the first file; empty when the page is empty.'),
    last_id: text('Id of the last file; empty when the page is empty.'),
    has_more: hasMore,
  },
  { description: 'A page of files.' },
);

const anthropicList = Type.Object(
  {
    data: Type.Array(anthropicFile, { description: 'The files.' }),
    has_more: hasMore,
    first_id: idOrNull('Id of the first file.'),
    last_id: idOrNull('Id of the last file.'),
    next_page: idOrNull('The value of `page` for the next request; null: this is the last page.'),
  },
  { description: 'A page of files, with `anthropic-version`.' },
);

const openAiDeleted = Type.Object(
  {
    id: text('Id of the file.'),
    object: Type.Literal('file', { description: 'Always `file`.' }),
    deleted: Type.Literal(true, { description: 'Always true.' }),
  },
  { description: 'The file is deleted.' },
);

const anthropicDeleted = Type.Object(
  {
    id: text('Id of the file.'),
    type: Type.Literal('file_deleted', { description: 'Always `file_deleted`.' }),
  },
  { description: 'The file is deleted, with `anthropic-version`.' },
);

const upload = Type.Object(
  {
    file: Type.Unsafe<string>({ type: 'string', format: 'binary', description: 'The file, with its name.' }),
    purpose: Type.Optional(Type.Enum(purposes, { description: 'Required without `anthropic-version`.' })),
    'expires_after[anchor]': Type.Optional(
      Type.Literal('created_at', { description: 'Required together with the seconds.' }),
    ),
    'expires_after[seconds]': Type.Optional(
      Type.Integer({ minimum: 3600, maximum: 2_592_000, description: 'When the file is deleted.' }),
    ),
    expires_in_seconds: Type.Optional(
      Type.Integer({
        minimum: 3600,
        maximum: 7_776_000,
        description: 'With `anthropic-version`: when the file is deleted.',
      }),
    ),
  },
  { description: 'A file and its fields, in any order.' },
);

const error: ErrorForm = {
  name: 'FilesError',
  schema: (body) =>
    Type.Object({
      type: Type.Optional(Type.Literal('error', { description: 'With `anthropic-version`.' })),
      error: body,
      request_id: Type.Optional(Type.String({ description: 'With `anthropic-version`.' })),
    }),
  print: (body) => JSON.stringify({ error: body }),
};

const version: ParameterDescription = {
  name: 'anthropic-version',
  in: 'header',
  description: 'Any value: answers have the form of that interface.',
  schema: Type.String(),
};
const fileId: ParameterDescription = {
  name: 'file_id',
  in: 'path',
  description: 'Id of a file of the account; `file-` and `file_` are the same.',
  schema: Type.String(),
};

const common = { tag: 'Files', key: 'required', error } as const;
const json = 'application/json';

export const fileOperations: readonly PlainOperation[] = [
  {
    ...common,
    path: '/v1/files',
    method: 'post',
    operationId: 'uploadFile',
    summary: 'Upload a file',
    description:
      'Images, text, CSV, JSON, Markdown and PDF can then be named by id in the content of messages on every API, with every backend. Needs a key that belongs to a user. Not available with zero data retention.',
    exposure: 'upload',
    parameters: [version],
    body: { contentType: 'multipart/form-data', schema: upload },
    answers: [{ status: 200, description: 'The file.', contentType: json, schema: file }],
    named: {
      FileUpload: self(upload),
      File: self(openAiFile),
      FileWithVersion: self(anthropicFile),
      FileList: self(openAiList),
      FileListWithVersion: self(anthropicList),
      FileDeleted: self(openAiDeleted),
      FileDeletedWithVersion: self(anthropicDeleted),
    },
  },
  {
    ...common,
    path: '/v1/files',
    method: 'get',
    operationId: 'listFiles',
    summary: 'List files',
    description: 'Files of the account, newest first.',
    exposure: 'files',
    parameters: [
      version,
      { name: 'purpose', in: 'query', description: 'Only files of this purpose.', schema: Type.String() },
      {
        name: 'limit',
        in: 'query',
        description: 'Maximum of files per page; when absent 10,000, or 20 with `anthropic-version`.',
        schema: Type.Integer({ minimum: 1, maximum: 10_000 }),
      },
      { name: 'order', in: 'query', description: 'By time.', schema: Type.Enum(['asc', 'desc']) },
      { name: 'after', in: 'query', description: 'Id of the file after which the page starts.', schema: Type.String() },
      {
        name: 'page',
        in: 'query',
        description: 'With `anthropic-version`: `next_page` of the page before.',
        schema: Type.String(),
      },
      {
        name: 'after_id',
        in: 'query',
        description: 'With `anthropic-version`: id of the file that the page begins behind.',
        schema: Type.String(),
      },
      {
        name: 'before_id',
        in: 'query',
        description: 'With `anthropic-version`: id of the file that the page ends before.',
        schema: Type.String(),
      },
      {
        name: 'ids[]',
        in: 'query',
        description: 'With `anthropic-version`: only these files, at most 100.',
        schema: Type.Array(Type.String()),
      },
    ],
    answers: [
      { status: 200, description: 'The files.', contentType: json, schema: Type.Union([openAiList, anthropicList]) },
    ],
  },
  {
    ...common,
    path: '/v1/files/{file_id}',
    method: 'get',
    operationId: 'getFile',
    summary: 'Get a file',
    description: 'Its name, size and times.',
    exposure: 'files',
    parameters: [fileId, version],
    answers: [{ status: 200, description: 'The file.', contentType: json, schema: file }],
  },
  {
    ...common,
    path: '/v1/files/{file_id}',
    method: 'delete',
    operationId: 'deleteFile',
    summary: 'Delete a file',
    description: 'The file is deleted at once.',
    exposure: 'files',
    parameters: [fileId, version],
    answers: [
      {
        status: 200,
        description: 'The file is deleted.',
        contentType: json,
        schema: Type.Union([openAiDeleted, anthropicDeleted]),
      },
    ],
  },
  {
    ...common,
    path: '/v1/files/{file_id}/content',
    method: 'get',
    operationId: 'getFileContent',
    summary: 'Get the contents of a file',
    description: 'The bytes as uploaded, as a download.',
    exposure: 'files',
    parameters: [fileId, version],
    answers: [
      {
        status: 200,
        description: 'The bytes, with their detected type.',
        contentType: '*/*',
        schema: Type.Unknown(),
        headers: {
          'Content-Disposition': 'The name of the file.',
          'X-Content-Type-Options': 'Always `nosniff`.',
          'Content-Security-Policy': 'Always `sandbox`: a file is never a page of this host.',
        },
      },
    ],
  },
];
