import { stringify } from 'yaml';
import { defaultModels } from './defaults.ts';
import type { SchemaNode } from '../platform/schema-node.ts';

/**
 * A `tokenhouse.yaml` that states every default, with the meaning of each setting; settings without a default appear as comments
 * with an example. All of it comes from the schema and the defaults, so it cannot deviate from them.
 */
export function commentedConfig(root: SchemaNode, schemaPath: string): string {
  const lines = [
    `# yaml-language-server: $schema=${schemaPath}`,
    `# ${sentence(root.description ?? '')} Every line states the default, so each may be left out.`,
    '# Check changes with: tokenhouse config check',
    ...Object.entries(root.properties ?? {}).flatMap(([key, node]) => [
      '',
      ...setting(key, node, key === 'models' ? defaultModels : undefined, ''),
    ]),
  ];
  return `${lines.join('\n')}\n`;
}

/** `given` is the value in the defaults; without it the schema's own default or, as a comment, an example. */
function setting(key: string, node: SchemaNode, given: unknown, indent: string): readonly string[] {
  const value = given ?? node.default;
  if (node.properties !== undefined) {
    // With only some of its fields it would be invalid.
    if (given === undefined && node.required !== undefined)
      return [comment(node, indent), `${indent}# ${key}:`, ...exampleGroup(node, `${indent}#   `)];
    const inside = group(node, given as Readonly<Record<string, unknown>> | undefined, `${indent}  `);
    // A group without any field would be empty, which is not a group.
    const isEmpty = inside.every((line) => line.trimStart().startsWith('#'));
    return [comment(node, indent), isEmpty ? `${indent}# ${key}:` : `${indent}${key}:`, ...inside];
  }
  if (Array.isArray(given) && isOfGroups(node.items)) {
    return [
      comment(node, indent),
      `${indent}${key}:`,
      ...(given as readonly Readonly<Record<string, unknown>>[]).flatMap((entry) =>
        item(node.items!, entry, `${indent}  `),
      ),
      ...others(node.items!, given, `${indent}  `),
    ];
  }
  if (isOfGroups(node.items) && value === undefined)
    return [comment(node, indent), `${indent}# ${key}:`, ...exampleItem(node.items!, `${indent}# `)];
  if (Array.isArray(value))
    return [comment(node, indent), `${indent}${key}:`, ...value.map((entry) => `${indent}  - ${scalar(entry)}`)];
  const words = node.description === undefined ? '' : ` # ${node.description}`;
  if (value !== undefined) return [`${indent}${key}: ${scalar(value)}${words}`];
  const example = node.examples?.[0];
  return example === undefined ? [] : [`${indent}# ${key}: ${scalar(example)}${words}`];
}

function group(
  node: SchemaNode,
  given: Readonly<Record<string, unknown>> | undefined,
  indent: string,
): readonly string[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, member]) => setting(key, member, given?.[key], indent));
}

/** An entry of a list of groups: its first line has the dash. */
function item(node: SchemaNode, entry: Readonly<Record<string, unknown>>, indent: string): readonly string[] {
  const lines = group(chosen(node, entry), entry, `${indent}  `);
  return lines.map((line, index) => (index === 0 ? `${indent}- ${line.trimStart()}` : line));
}

/** An absent entry of a list, as a comment. */
function exampleItem(node: SchemaNode, indent: string): readonly string[] {
  return exampleGroup(node, '').map((line, index) => `${indent}  ${index === 0 ? '-' : ' '} ${line}`);
}

/** An absent group, as a comment. */
function exampleGroup(node: SchemaNode, indent: string): readonly string[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, member]) => {
    const { examples, description = '', items, properties } = member;
    if (isOfGroups(items)) return [`${indent}${key}: # ${description}`, ...exampleItem(items!, indent)];
    if (properties !== undefined) return [`${indent}${key}: # ${description}`, ...exampleGroup(member, `${indent}  `)];
    return [`${indent}${key}: ${scalar(examples?.[0])} # ${description}`];
  });
}

/** The other kinds of entry, each as a comment with examples. */
function others(node: SchemaNode, given: readonly unknown[], indent: string): readonly string[] {
  const used = new Set(given.map((entry) => chosen(node, entry as Readonly<Record<string, unknown>>)));
  return (node.anyOf ?? [])
    .filter((alternative) => !used.has(alternative) && Object.values(alternative.properties ?? {}).some(hasExample))
    .flatMap((alternative) => {
      const [first, ...rest] = Object.entries(alternative.properties ?? {}).flatMap(([key, member]) => {
        const value = member.const ?? member.examples?.[0];
        return value === undefined ? [] : [`${key}: ${scalar(value)}`];
      });
      const mark = `${indent}# `;
      return [
        `${mark}Or ${alternative.description ?? ''}:`,
        `${mark}- ${first}`,
        ...rest.map((line) => `${mark}  ${line}`),
      ];
    });
}

const hasExample = (node: SchemaNode): boolean => node.examples !== undefined && node.default === undefined;

const isOfGroups = (node: SchemaNode | undefined): boolean =>
  node?.properties !== undefined || node?.anyOf?.every((choice) => choice.properties !== undefined) === true;

function chosen(node: SchemaNode, entry: Readonly<Record<string, unknown>>): SchemaNode {
  const matches = (choice: SchemaNode): boolean =>
    Object.entries(choice.properties ?? {}).every(
      ([key, { const: only }]) => only === undefined || only === entry[key],
    );
  return node.anyOf?.find(matches) ?? node;
}

const comment = (node: SchemaNode, indent: string): string => `${indent}# ${node.description ?? ''}`;

const sentence = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;

/** On one line, quoted where YAML needs it. */
const scalar = (value: unknown): string => stringify(value, { lineWidth: 0, collectionStyle: 'flow' }).trimEnd();
