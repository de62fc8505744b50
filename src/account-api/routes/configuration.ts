import Type from 'typebox';

import { changedSince, EditRefused } from '../../config/editor.ts';
import type { Change, ConfigEditor, Edited } from '../../config/editor.ts';
import { ConfigError } from '../../config/problem.ts';
import { ApiError } from '../../platform/errors.ts';
import { changeFields, checkVariable, editOf, modelOfChange, shownChange, withOperators } from '../config-change.ts';
import type { ConfigChange } from '../config-change.ts';
import { notThere } from '../input.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { nullable } from '../wire.ts';

const difference = Type.Array(Type.String(), {
  description: 'Lines as `diff -u` prints them, `(secret)` in place of secrets; empty: nothing changes.',
});
const file = Type.String({ description: 'Its path on the computer of the service.' });
const digest = Type.String({ minLength: 64, maxLength: 64 });

/** Changes of the configuration file (decision 061). */
export const configurationRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/configuration',
    operationId: 'getConfiguration',
    tag: 'Server',
    summary: 'Whether the configuration can be changed here',
    description:
      'Where the configuration file is, and whether the service can write it. Its text is not shown: it may hold secrets.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'The file.',
        schema: Type.Object({
          object: Type.Literal('configuration'),
          file,
          is_writable: Type.Boolean(),
          problem: nullable(Type.String({ description: 'Why it cannot be written.' })),
        }),
      },
    ],
    handle: ({ services }) => {
      const { file: path, problem } = editorOf(services);
      return Promise.resolve({
        object: 'configuration',
        file: path,
        is_writable: problem === undefined,
        problem: problem ?? null,
      });
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/configuration/preview',
    operationId: 'previewConfigurationChange',
    tag: 'Server',
    summary: 'Show what a change makes of the configuration file',
    description: 'The change is checked as at a start, and its difference is answered. Nothing is written.',
    access: 'operator',
    body: Type.Object(changeFields, { additionalProperties: false }),
    answers: [
      {
        status: 200,
        description: 'The difference.',
        schema: Type.Object({
          object: Type.Literal('configuration.preview'),
          file,
          digest: Type.String({ description: 'Of the present text, for the change itself.' }),
          difference,
        }),
      },
    ],
    errors: ['http_404', 'http_409'],
    handle: async ({ body, services }) => {
      const editor = editorOf(services);
      const edit = await editMeant(body, services);
      const edited = await reported(() => editor.preview(edit));
      return { object: 'configuration.preview', file: editor.file, ...edited };
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/configuration/changes',
    operationId: 'changeConfiguration',
    tag: 'Server',
    summary: 'Change the configuration file',
    description:
      'Writes what the preview showed, and takes it over at once; requests that run are not disturbed. If the service cannot take it over, the file is put back. If the file is no longer the one that the preview was about, the answer is 409. With several computers, each reads a file of its own.',
    access: 'operator',
    stepUp: true,
    body: Type.Object({ ...changeFields, digest }, { additionalProperties: false }),
    answers: [
      {
        status: 200,
        description: 'The change is in force.',
        schema: Type.Object({
          object: Type.Literal('configuration.change'),
          file,
          digest: Type.String({ description: 'Of the text that was written.' }),
          difference,
        }),
      },
    ],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { digest: seen, ...change } = call.body;
      const editor = editorOf(call.services);
      const edit = await editMeant(change, call.services);
      const { problem } = editor;
      if (problem !== undefined) throw new ApiError('http_409', problem);
      const shown = await reported(() => editor.preview(edit));
      // Not left to the write: another change may put the file back to that text meanwhile.
      if (shown.digest !== seen) throw new ApiError('http_409', changedSince);
      // Known to the audit log before it is made, as every operation.
      await call.audit({
        action: 'configuration.change',
        target: modelOfChange(change),
        before: { digest: seen },
        after: { ...shownChange(change), difference: shown.difference.slice(0, auditLinesMax) },
      });
      const edited = await reported(() => editor.save(edit, seen));
      return { object: 'configuration.change', file: editor.file, ...edited };
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/servers/probe',
    operationId: 'probeServer',
    tag: 'Server',
    summary: 'Ask a server what it is and serves',
    description:
      'As `tokenhouse backends add` does before it writes anything. Without `model` it tells which models it has, within seconds; with it, the server is sent a short request, and one with a tool.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        url: Type.String({ minLength: 1, maxLength: 2000, description: 'Scheme and version path may be left out.' }),
        api_key: Type.Optional(Type.String({ minLength: 1, maxLength: 4096 })),
        api_key_env: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
        flavor: Type.Optional(Type.String({ minLength: 1, maxLength: 32 })),
        model: Type.Optional(Type.String({ minLength: 1, maxLength: 1000, description: 'Its id on that server.' })),
      },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 200,
        description: 'What was found.',
        schema: Type.Object({
          object: Type.Literal('server_probe'),
          url: Type.String({ description: 'Where its API is.' }),
          flavor: Type.String({ description: 'What kind of server it looks like.' }),
          models: Type.Array(Type.Object({ id: Type.String(), context_length: nullable(Type.Integer()) })),
          answer: nullable(
            Type.Object({
              kind: Type.Enum(['chat', 'embeddings', 'rerank']),
              tools: Type.Boolean(),
              reasoning: Type.Boolean(),
              text: nullable(Type.String({ description: 'Its answer to a greeting.' })),
              dimensions: nullable(Type.Integer({ description: 'Of its vectors.' })),
              tokens_per_second: Type.Number(),
            }),
          ),
        }),
      },
    ],
    handle: async ({ body, services, signal }) => {
      const { api_key: key, api_key_env: variable, ...asked } = body;
      if (services.probeServer === undefined) throw notThere();
      checkVariable(variable);
      const found = await services.probeServer({ ...asked, apiKey: key, apiKeyEnv: variable }, signal);
      return {
        object: 'server_probe',
        url: found.url,
        flavor: found.flavor,
        models: found.models.map(({ id, contextLength }) => ({ id, context_length: contextLength })),
        answer: found.answer,
      };
    },
  }),
];

/** Lines of a difference that the audit log keeps. */
const auditLinesMax = 200;

function editorOf({ configEditor }: Call['services']): ConfigEditor {
  if (configEditor === undefined) throw notThere();
  return configEditor;
}

const editMeant = async (change: ConfigChange, { operations }: Call['services']): Promise<Change> =>
  editOf(await withOperators(change, () => operations.repositories.listOperatorAccounts({})));

/** What the operator is told about a change that is refused. */
async function reported(edit: () => Edited | Promise<Edited>): Promise<Edited> {
  try {
    return await edit();
  } catch (error) {
    if (error instanceof EditRefused) throw new ApiError('http_409', error.message, { cause: error });
    if (!(error instanceof ConfigError)) throw error;
    const whats = error.problems.slice(0, 5).map(({ where, what }) => `${where}: ${what}`);
    throw new ApiError('unsupported_value', whats.join('\n'), { cause: error });
  }
}
