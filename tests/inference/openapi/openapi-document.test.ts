import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { accountDocument } from '../../../src/account-api/openapi-document.ts';
import { accountRoutes } from '../../../src/account-api/routes.ts';
import { modelCard, modelList } from '../../../src/catalog/card.ts';
import { errorTable } from '../../../src/platform/errors.ts';
import { describedEndpoints } from '../../../src/inference/http/described.ts';
import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import { openApiDocument } from '../../../src/inference/openapi/openapi-document.ts';
import { plainOperations } from '../../../src/inference/openapi/plain-operations.ts';
import { wires } from '../../conformance/dialects.ts';
import { print, readStreamCase, streamCaseNames } from '../../conformance/stream-case.ts';
import { DocumentJudge, faultsOfDocument } from './judge.ts';
import type { Node } from './judge.ts';
import { model, models } from './model.ts';

/** The API description by itself: it is right OpenAPI, complete, and says what the encoders print. */
const document = JSON.parse(
  JSON.stringify(
    openApiDocument({
      version: '1.2.3',
      endpoints: describedEndpoints,
      operations: plainOperations,
      models,
      accountUrl: 'http://localhost:8081',
      bodyBytesMax: 52_428_800,
    }),
  ),
) as Node;
const judge = new DocumentJudge(document);
const paths = document['paths'] as Readonly<Record<string, Readonly<Record<string, Node>>>>;
const operations = Object.entries(paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
);
const schemas = (document['components'] as Node)['schemas'] as Readonly<Record<string, Node>>;

const accountApi = JSON.parse(
  JSON.stringify(accountDocument({ version: '1.2.3', routes: accountRoutes, accountUrl: 'http://localhost:8081' })),
) as Node;

/** Every node of a tree, with the path to it. */
function* nodesOf(node: unknown, at = ''): Generator<readonly [at: string, node: Node]> {
  if (typeof node !== 'object' || node === null) return;
  if (!Array.isArray(node)) yield [at, node as Node];
  for (const [name, child] of Object.entries(node)) yield* nodesOf(child, `${at}/${name}`);
}

describe('it is an OpenAPI 3.1 document', () => {
  test('by its published schema', () => {
    assert.deepEqual(faultsOfDocument(document), []);
  });

  for (const [what, pointer, value] of [
    ['no version', '/info/version', undefined],
    ['a field that an operation has not', '/paths/~1v1~1models/get/foo', 1],
    ['an operation without answers', '/paths/~1v1~1models/get/responses', {}],
    ['an answer without a description', '/paths/~1healthz/get/responses/200/description', undefined],
    ['an unknown security scheme', '/components/securitySchemes/bearer/type', 'magic'],
    ['a parameter that is nowhere', '/components/parameters/service-zdr/in', 'nowhere'],
  ] as const) {
    test(`the judge sees ${what}`, () => {
      const copy = new DocumentJudge(structuredClone(document));
      const parent = copy.at(`#${pointer.slice(0, pointer.lastIndexOf('/'))}`) as Record<string, unknown>;
      const name = pointer.slice(pointer.lastIndexOf('/') + 1);
      if (value === undefined) Reflect.deleteProperty(parent, name);
      else parent[name] = value;
      assert.notDeepEqual(faultsOfDocument(copy.document), []);
    });
  }

  for (const [host, printed] of Object.entries({ inference: document, account: accountApi })) {
    test(`every pointer points at something, and everything that has a name is used (${host})`, () => {
      const pointers = [...nodesOf(printed)].flatMap(([, { $ref }]) => (typeof $ref === 'string' ? [$ref] : []));
      assert.ok(pointers.length > 20);
      const printedJudge = new DocumentJudge(printed);
      for (const pointer of pointers) printedJudge.at(pointer);
      const named = Object.entries(printed['components'] as Node).flatMap(([kind, group]) =>
        Object.keys(group as object).map((name) => `#/components/${kind}/${name}`),
      );
      const schemes = named.filter((name) => name.includes('/securitySchemes/'));
      assert.deepEqual(schemes.length, 2);
      assert.deepEqual(
        named.filter((name) => !pointers.includes(name) && !schemes.includes(name)),
        [],
      );
    });
  }

  test('every operation has an id of its own, a summary, a tag that is listed, and answers', () => {
    const ids = operations.map(({ operation }) => operation['operationId']);
    assert.equal(new Set(ids).size, ids.length, String(ids));
    const tags = (document['tags'] as readonly { name: string }[]).map(({ name }) => name);
    for (const { path, operation } of operations) {
      for (const field of ['operationId', 'summary', 'description'] as const)
        assert.ok(typeof operation[field] === 'string' && operation[field] !== '', `${path} ${field}`);
      for (const tag of operation['tags'] as readonly string[]) assert.ok(tags.includes(tag), tag);
      assert.ok(
        Object.keys(operation['responses'] as object).some((status) => status.startsWith('2')),
        path,
      );
    }
  });

  test('schemas use keywords that are there, and compile', () => {
    const known = new Set(
      'type properties required items additionalProperties anyOf enum const description format minimum maximum exclusiveMinimum minItems maxItems minLength maxLength pattern $ref'.split(
        ' ',
      ),
    );
    const walk = (at: string, schema: unknown): void => {
      if (typeof schema !== 'object' || schema === null) return;
      const { properties = {}, items, anyOf = [], additionalProperties, ...rest } = schema as Node;
      for (const keyword of Object.keys(rest)) assert.ok(known.has(keyword), `${at}: ${keyword}`);
      for (const [name, child] of Object.entries(properties as Node)) walk(`${at}.${name}`, child);
      for (const child of [items, additionalProperties, ...(anyOf as readonly unknown[])]) walk(`${at}[]`, child);
    };
    for (const [name, schema] of Object.entries(schemas)) {
      walk(name, schema);
      judge.faults(schema, {});
    }
  });
});

describe('it is complete', () => {
  test('every inference route is there, as a POST with a body and examples', () => {
    for (const path of inferenceRoutes.keys()) {
      const operation = paths[path]?.['post'];
      assert.ok(operation, path);
      const media = judge.at(`#/paths/${path.replaceAll('/', '~1')}/post/requestBody/content/application~1json`);
      assert.ok(Object.keys(media['examples'] as object).length > 0, path);
    }
  });

  test('every field of a request or an answer, however deep, has a description', () => {
    const silent: string[] = [];
    const walk = (at: string, schema: unknown): void => {
      if (typeof schema !== 'object' || schema === null) return;
      const { properties = {}, items, anyOf = [] } = schema as Node;
      for (const [name, child] of Object.entries(properties as Readonly<Record<string, Node>>)) {
        const target = typeof child['$ref'] === 'string' ? judge.at(child['$ref']) : child;
        if (child['description'] === undefined && target['description'] === undefined) silent.push(`${at}.${name}`);
        walk(`${at}.${name}`, child);
      }
      walk(`${at}[]`, items);
      for (const child of anyOf as readonly unknown[]) walk(at, child);
    };
    for (const [name, schema] of Object.entries(schemas)) walk(name, schema);
    assert.deepEqual(silent, []);
  });

  test('every field of the schema that checks a request is in the document', () => {
    for (const { path, description } of describedEndpoints) {
      const media = judge.at(`#/paths/${path.replaceAll('/', '~1')}/post/requestBody/content/application~1json`);
      const { $ref } = media['schema'] as Node;
      const printed = typeof $ref === 'string' ? judge.at($ref) : (media['schema'] as Node);
      const checked = Object.keys((description.request as unknown as { properties: object }).properties);
      assert.ok(checked.length > 0);
      assert.deepEqual(Object.keys(printed['properties'] as object), checked);
    }
  });

  test('every error code is there, at its status, and its example is right', () => {
    const seen = new Set<string>();
    for (const { path, method, operation } of operations) {
      for (const [status, response] of Object.entries(operation['responses'] as Readonly<Record<string, Node>>)) {
        if (Number(status) < 400) continue;
        const { $ref } = response;
        const { content = {}, description } = (typeof $ref === 'string' ? judge.at($ref) : response) as {
          content?: Readonly<Record<string, { examples?: Readonly<Record<string, { value: unknown }>> }>>;
          description: string;
        };
        const examples = content['application/json']?.examples ?? {};
        for (const [code, { value }] of Object.entries(examples)) {
          seen.add(code);
          assert.equal(errorTable[code as keyof typeof errorTable].status, Number(status), code);
          assert.ok(description.includes(`\`${code}\``), code);
          const schema = judge.answerSchema(path, method, Number(status), 'application/json');
          assert.deepEqual(judge.faults(schema, value), [], code);
        }
      }
    }
    assert.deepEqual(
      Object.keys(errorTable).filter((code) => !seen.has(code)),
      [],
    );
  });
});

describe('what the encoders print is what it says', () => {
  for (const [wire, printer] of wires) {
    const found = describedEndpoints.find(({ path }) => inferenceRoutes.get(path)?.dialect === printer.dialect);
    test(`${wire} has an endpoint`, () => assert.ok(found));
    for (const name of streamCaseNames()) {
      test(`${name} on ${wire}`, () => {
        const { path } = found!;
        const script = readStreamCase(name);
        const { sse, json } = print(script, printer);
        const status = script.error === undefined ? 200 : errorTable[script.error.code].status;
        const schema = judge.answerSchema(path, 'post', status, 'application/json');
        assert.deepEqual(judge.faults(schema, JSON.parse(json)), [], json);
        assert.deepEqual(judge.faultsOfStream(path, sse), []);
      });
    }
  }

  test('the catalog', () => {
    const list = modelList([modelCard(model, model.prices, 1_790_000_000)]);
    const schema = judge.answerSchema('/v1/models', 'get', 200, 'application/json');
    assert.deepEqual(judge.faults(schema, list), []);
    assert.deepEqual(judge.faults(schema, modelList([])), []);
  });

  for (const [wire, printer] of wires) {
    test(`the judge sees a field of ${wire} that is not described`, () => {
      const { path } = describedEndpoints.find((one) => inferenceRoutes.get(one.path)?.dialect === printer.dialect)!;
      const { sse, json } = print(readStreamCase('text'), printer);
      const more = (text: string): string => text.replace('{', '{"more":1,');
      const schema = judge.answerSchema(path, 'post', 200, 'application/json');
      assert.notDeepEqual(judge.faults(schema, JSON.parse(more(json))), []);
      for (const event of sse.split('\n\n').filter((one) => one.includes('data: {')))
        assert.notDeepEqual(judge.faultsOfStream(path, more(event)), [], event);
    });
  }

  test('the judge sees a field that is not described, one that is missing, and one of another type', () => {
    const schema = judge.answerSchema('/v1/models', 'get', 200, 'application/json');
    const list = modelList([]);
    assert.notDeepEqual(judge.faults(schema, { ...list, more: 1 }), []);
    assert.notDeepEqual(judge.faults(schema, { ...list, data: undefined }), []);
    assert.notDeepEqual(judge.faults(schema, { ...list, first_id: 1 }), []);
  });
});
