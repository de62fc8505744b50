// The reference of both hosts as Markdown, one page for each tag of their OpenAPI documents: requests and answers.
import { importSources } from '../bundle.mjs';

/** Depth to which nested fields are listed; deeper ones are in the document itself. */
const depthMax = 3;
const rowsMax = 250;

/** `{ slug, text }` of each page. */
export async function referencePages() {
  const [{ accountDocument }, { accountRoutes }, { openApiDocument }, { describedEndpoints }, { plainOperations }] =
    await importSources(
      'src/account-api/openapi-document.ts',
      'src/account-api/routes.ts',
      'src/inference/openapi/openapi-document.ts',
      'src/inference/http/described.ts',
      'src/inference/openapi/plain-operations.ts',
    );
  const facts = { version: '', accountUrl: '' };
  const inference = openApiDocument({
    ...facts,
    endpoints: describedEndpoints,
    operations: plainOperations,
    models: [],
    bodyBytesMax: 47_185_920,
  });
  const account = accountDocument({ ...facts, accountUrl: 'http://localhost:8081', routes: accountRoutes });
  return [
    ...pagesOf(inference, 'Inference host', 'http://localhost:8080'),
    ...pagesOf(account, 'Account host', 'http://localhost:8081'),
  ];
}

function pagesOf(document, host, address) {
  return document.tags.map(({ name }) => {
    const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([, operation]) => operation.tags?.includes(name))
        .map(([method, operation]) => operationText(path, method, operation, document)),
    );
    const title = `${name} · ${host.toLowerCase()}`;
    const about = `Below \`${address}\` where nothing else is configured. The whole document for programs is \`/openapi.json\` of this host.`;
    return {
      slug: `reference/${host.split(' ')[0].toLowerCase()}/${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`,
      text: `# ${title}\n\n${about}\n\n${operations.join('\n')}`,
    };
  });
}

function operationText(path, method, operation, document) {
  const { summary, description, parameters = [], requestBody, responses } = operation;
  const given = parameters.map((parameter) => resolved(parameter, document));
  const body = requestBody && Object.values(resolved(requestBody, document).content ?? {})[0]?.schema;
  return [
    `## ${summary ?? operation.operationId}`,
    '',
    `\`${method.toUpperCase()} ${path}\``,
    '',
    text(description ?? '').replaceAll('\n', '\n\n'),
    '',
    ...table(
      'Parameters',
      given.map((parameter) => ({
        name: parameter.name,
        type: `${parameter.in}, ${typeOf(parameter.schema ?? {}, document)}`,
        required: parameter.required,
        what: parameter.description ?? parameter.schema?.description ?? '',
      })),
    ),
    ...(body === undefined ? [] : table('Body', fieldsOf(body, document))),
    ...Object.entries(responses)
      .filter(([status]) => status.startsWith('2'))
      .flatMap(([status, response]) => answerText(status, resolved(response, document), document)),
  ].join('\n');
}

function answerText(status, { description, content = {} }, document) {
  const [[type, media] = []] = Object.entries(content);
  return [
    `**${status}** ${text(description)}${type === undefined || type === 'application/json' ? '' : ` \`${type}\``}`,
    '',
    ...(media?.schema === undefined ? [] : table('Answer', fieldsOf(media.schema, document))),
  ];
}

function table(title, rows) {
  if (rows.length === 0) return [];
  const lines = rows.slice(0, rowsMax).map(({ name, type, required, what }) => {
    const needed = required ? ', required' : '';
    return `| \`${name}\` | ${cell(type)}${needed} | ${cell(what)} |`;
  });
  const more = rows.length > rowsMax ? [`| … | | ${rows.length - rowsMax} more in the document |`] : [];
  return [`| ${title} | | |`, '|-|-|-|', ...lines, ...more, ''];
}

/** The fields of a schema, each with its path: `messages[].content`. */
function fieldsOf(schema, document, at = '', depth = 0, seen = []) {
  const node = resolved(schema, document);
  if (seen.includes(node) || depth > depthMax) return [];
  const inner = [...seen, node];
  const choices = node.anyOf ?? node.oneOf ?? node.allOf;
  if (choices !== undefined && node.properties === undefined) {
    const rows = choices.flatMap((choice) => fieldsOf(choice, document, at, depth, inner));
    return rows.filter((row, index) => rows.findIndex(({ name }) => name === row.name) === index);
  }
  if (node.items !== undefined) return fieldsOf(node.items, document, `${at}[]`, depth, inner);
  return Object.entries(node.properties ?? {}).flatMap(([name, property]) => {
    const field = resolved(property, document);
    const path = at === '' ? name : `${at}.${name}`;
    return [
      {
        name: path,
        type: typeOf(property, document),
        required: at === '' && node.required?.includes(name),
        what: property.description ?? field.description ?? '',
      },
      ...fieldsOf(property, document, path, depth + 1, inner),
    ];
  });
}

function typeOf(schema, document) {
  const node = resolved(schema, document);
  if (node.const !== undefined) return `\`${JSON.stringify(node.const)}\``;
  if (node.enum !== undefined) return node.enum.map((value) => `\`${JSON.stringify(value)}\``).join(', ');
  const choices = node.anyOf ?? node.oneOf;
  if (choices !== undefined) return [...new Set(choices.map((choice) => typeOf(choice, document)))].join(' or ');
  const [type] = [node.type ?? 'any'];
  const name = Array.isArray(type) ? type.join(' or ') : type;
  return `${name}${boundsOf(node)}`;
}

function boundsOf({ minimum, maximum, maxLength, maxItems }) {
  if (maxItems !== undefined) return `, at most ${maxItems.toLocaleString('en')}`;
  if (maxLength !== undefined) return `, at most ${maxLength.toLocaleString('en')} characters`;
  if (minimum !== undefined && maximum !== undefined)
    return `, ${minimum.toLocaleString('en')} to ${maximum.toLocaleString('en')}`;
  if (minimum !== undefined) return `, from ${minimum.toLocaleString('en')}`;
  return maximum === undefined ? '' : `, up to ${maximum.toLocaleString('en')}`;
}

function resolved(schema, document) {
  if (typeof schema?.$ref !== 'string') return schema ?? {};
  const found = schema.$ref
    .slice(2)
    .split('/')
    .reduce((node, part) => node?.[part.replaceAll('~1', '/').replaceAll('~0', '~')], document);
  if (found === undefined) throw new Error(`the document has no ${schema.$ref}`);
  return resolved(found, document);
}

/** Text of the document is not Markdown in this page, except for code. */
const text = (words) => words.replaceAll('<', '&lt;').replaceAll(/^(#|-|\d+\.)/gm, '\\$1');
const cell = (words) => text(words).replaceAll('|', '\\|').replaceAll('\n', ' ');
