import { existsSync } from 'node:fs';
import path from 'node:path';

import { readJsonText, withJsonValue } from './json-text.ts';
import { withTomlValues } from './toml-text.ts';
import { readYamlText, withYamlItem } from './yaml-text.ts';

/** What a client is configured with. */
export interface Connection {
  /** The address of the service, without `/v1`. */
  readonly url: string;
  readonly key: string;
  /** ISO 8601. */
  readonly madeAt: string;
  readonly model: OfferedModel;
  /** All models that chat, including `model`. */
  readonly models: readonly OfferedModel[];
}

export interface OfferedModel {
  readonly id: string;
  readonly contextLength: number;
  readonly tools: boolean;
  readonly vision: boolean;
}

/** The folders in which clients look for their files. */
export interface Places {
  readonly home: string;
  /** The folder that the command was given in. */
  readonly directory: string;
  readonly platform: NodeJS.Platform;
  variable(name: string): string | undefined;
}

/** A program that is set up by a file, by variables, or by both. */
export interface Client {
  readonly title: string;
  readonly file?: {
    place(places: Places): string;
    /** Throws `TextProblem` for a text that it cannot change. */
    change(text: string, connection: Connection): string;
    /** The file's parsed content, for a comparison. */
    read(text: string): unknown;
    /** Whether the key is in it, so that nobody else may read it. */
    readonly hasKey: boolean;
    /** The client writes to it while it runs, so a change need not come from its user. */
    readonly isClientsOwn?: boolean;
  };
  /** What it needs in its environment, in addition to its file. */
  environment(connection: Connection): Readonly<Record<string, string>>;
  /** The command, for those that run in a terminal. */
  readonly program?: { readonly words: readonly [string, ...string[]]; readonly install: string };
  /** The smallest window in which the client's instructions leave room to work; 0: any. */
  readonly contextMin: number;
  readonly needsTools: boolean;
  /** What is left to do by hand. */
  readonly then?: string;
}

const noVariables = (): Readonly<Record<string, string>> => ({});
const inHome = ({ home }: Places, ...names: readonly string[]): string => path.join(home, ...names);
const configHome = (places: Places): string => places.variable('XDG_CONFIG_HOME') ?? inHome(places, '.config');

/** Sets each value, by the path of its names. */
const withJsonValues = (text: string, values: readonly (readonly [readonly string[], unknown])[]): string =>
  values.reduce((changed, [names, value]) => withJsonValue(changed, names, value), text);

const claude: Client = {
  title: 'Claude Code',
  file: {
    place: (places) => path.join(places.variable('CLAUDE_CONFIG_DIR') ?? inHome(places, '.claude'), 'settings.json'),
    change: (text, { url, key, model }) =>
      withJsonValues(
        text,
        Object.entries({
          ANTHROPIC_BASE_URL: url,
          ANTHROPIC_AUTH_TOKEN: key,
          // An Anthropic key in the environment would be used instead.
          ANTHROPIC_API_KEY: '',
          ANTHROPIC_MODEL: model.id,
          ANTHROPIC_DEFAULT_HAIKU_MODEL: model.id,
          ANTHROPIC_DEFAULT_SONNET_MODEL: model.id,
          ANTHROPIC_DEFAULT_OPUS_MODEL: model.id,
          // It assumes a window of a million tokens for an unknown model.
          CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(model.contextLength),
        }).map(([name, value]) => [['env', name], value] as const),
      ),
    read: readJsonText,
    hasKey: true,
  },
  environment: noVariables,
  program: { words: ['claude'], install: 'npm install --global @anthropic-ai/claude-code' },
  contextMin: 64_000,
  needsTools: true,
};

const codex: Client = {
  title: 'Codex',
  file: {
    place: (places) => path.join(places.variable('CODEX_HOME') ?? inHome(places, '.codex'), 'config.toml'),
    change: (text, { url, key, model }) =>
      withTomlValues(text, [
        { table: [], values: { model: model.id, model_provider: 'tokenhouse' } },
        {
          table: ['model_providers', 'tokenhouse'],
          values: {
            name: 'Tokenhouse',
            base_url: `${url}/v1`,
            wire_api: 'responses',
            experimental_bearer_token: key,
          },
        },
      ]),
    read: (text) => text,
    hasKey: true,
  },
  environment: noVariables,
  program: { words: ['codex'], install: 'npm install --global @openai/codex' },
  contextMin: 32_000,
  needsTools: true,
};

const opencode: Client = {
  title: 'opencode',
  file: {
    place: (places) => {
      const folder = path.join(configHome(places), 'opencode');
      const names = ['opencode.jsonc', 'opencode.json'];
      const found = names.find((name) => existsSync(path.join(folder, name)));
      return places.variable('OPENCODE_CONFIG') ?? path.join(folder, found ?? 'opencode.json');
    },
    change: (text, { url, key, model, models }) =>
      withJsonValues(text, [
        [['$schema'], 'https://opencode.ai/config.json'],
        [
          ['provider', 'tokenhouse'],
          {
            npm: '@ai-sdk/openai-compatible',
            name: 'Tokenhouse',
            options: { baseURL: `${url}/v1`, apiKey: key },
            models: Object.fromEntries(models.map((one) => [one.id, opencodeModel(one)])),
          },
        ],
        [['model'], `tokenhouse/${model.id}`],
        // Used for titles and the like.
        [['small_model'], `tokenhouse/${model.id}`],
      ]),
    read: readJsonText,
    hasKey: true,
  },
  environment: noVariables,
  program: { words: ['opencode'], install: 'npm install --global opencode-ai' },
  contextMin: 32_000,
  needsTools: true,
};

const opencodeModel = ({ id, contextLength, tools }: OfferedModel) => ({
  name: id,
  tool_call: tools,
  limit: { context: contextLength, output: Math.min(answerTokensMax, Math.floor(contextLength / 2)) },
});

const answerTokensMax = 32_000;

const cline: Client = {
  title: 'Cline',
  file: {
    place: (places) => {
      const data = places.variable('CLINE_DATA_DIR');
      const folder = data ?? path.join(places.variable('CLINE_DIR') ?? inHome(places, '.cline'), 'data');
      return places.variable('CLINE_PROVIDER_SETTINGS_PATH') ?? path.join(folder, 'settings', 'providers.json');
    },
    change: (text, { url, key, madeAt, model }) =>
      withJsonValues(text, [
        [['version'], 1],
        [['lastUsedProvider'], 'openai-compatible'],
        [
          ['providers', 'openai-compatible'],
          {
            settings: { provider: 'openai-compatible', apiKey: key, model: model.id, baseUrl: `${url}/v1` },
            updatedAt: madeAt,
            tokenSource: 'manual',
          },
        ],
      ]),
    read: readJsonText,
    hasKey: true,
    isClientsOwn: true,
  },
  environment: noVariables,
  program: { words: ['cline'], install: 'npm install --global cline' },
  contextMin: 32_000,
  needsTools: true,
};

const zed: Client = {
  title: 'Zed',
  file: {
    place: (places) =>
      places.platform === 'win32'
        ? path.join(places.variable('APPDATA') ?? inHome(places, 'AppData', 'Roaming'), 'Zed', 'settings.json')
        : path.join(
            places.platform === 'darwin' ? inHome(places, '.config') : configHome(places),
            'zed',
            'settings.json',
          ),
    change: (text, { url, model, models }) =>
      withJsonValues(text, [
        [
          ['language_models', 'openai_compatible', 'Tokenhouse'],
          {
            api_url: `${url}/v1`,
            available_models: models.map(({ id, contextLength, tools, vision }) => ({
              name: id,
              max_tokens: contextLength,
              capabilities: { tools, images: vision, parallel_tool_calls: tools, prompt_cache_key: false },
            })),
          },
        ],
        [['agent', 'default_model'], { provider: 'Tokenhouse', model: model.id }],
      ]),
    read: readJsonText,
    hasKey: false,
  },
  // Zed names the variable after the provider.
  environment: ({ key }) => ({ TOKENHOUSE_API_KEY: key }),
  contextMin: 0,
  needsTools: false,
  then: 'Give Zed the key: in its agent settings below LLM Providers, Tokenhouse, or as the variable above when you start it.',
};

const continueDev: Client = {
  title: 'Continue',
  file: {
    place: (places) => path.join(places.variable('CONTINUE_GLOBAL_DIR') ?? inHome(places, '.continue'), 'config.yaml'),
    change: (text, { url, key, model }) =>
      withYamlItem(
        readYamlText(text) === undefined ? `${text}name: Local\nversion: 1.0.0\nschema: v1\n` : text,
        ['models'],
        {
          name: 'Tokenhouse',
          provider: 'openai',
          model: model.id,
          apiBase: `${url}/v1`,
          apiKey: key,
          roles: ['chat', 'edit', 'apply'],
          ...(model.tools ? { capabilities: ['tool_use'] } : {}),
          defaultCompletionOptions: { contextLength: model.contextLength },
        },
      ),
    read: readYamlText,
    hasKey: true,
  },
  environment: noVariables,
  program: { words: ['cn'], install: 'npm install --global @continuedev/cli' },
  contextMin: 0,
  needsTools: false,
  then: "In an editor, choose the model Tokenhouse in Continue's panel.",
};

const openWebUi: Client = {
  title: 'Open WebUI',
  environment: ({ url, key, models }) => ({
    OPENAI_API_BASE_URL: `${url}/v1`,
    OPENAI_API_KEY: key,
    ENABLE_OLLAMA_API: 'false',
    // Otherwise the settings of its first start stay in force forever.
    ENABLE_PERSISTENT_CONFIG: 'false',
    // It sends every model 6,000 tokens of tools, which a model without tool calls refuses.
    ...(models.every(({ tools }) => tools)
      ? {}
      : { DEFAULT_MODEL_METADATA: JSON.stringify({ capabilities: { builtin_tools: false } }) }),
  }),
  program: { words: ['open-webui', 'serve'], install: 'pip install open-webui' },
  contextMin: 0,
  needsTools: false,
  then:
    'Set DATA_DIR to the folder for its data, else they are in its installation. For each question it also asks for a title, tags and further ' +
    'questions, which cost too: ENABLE_TITLE_GENERATION, ENABLE_TAGS_GENERATION and ENABLE_FOLLOW_UP_GENERATION=false turn them off.',
};

const libreChat: Client = {
  title: 'LibreChat',
  file: {
    place: (places) => path.resolve(places.directory, places.variable('CONFIG_PATH') ?? 'librechat.yaml'),
    change: (text, { url, key, model, models }) =>
      withYamlItem(readYamlText(text) === undefined ? `${text}version: 1.2.1\n` : text, ['endpoints', 'custom'], {
        name: 'Tokenhouse',
        apiKey: key,
        baseURL: `${url}/v1`,
        models: { default: [model, ...models.filter((one) => one !== model)].map(({ id }) => id), fetch: true },
        titleConvo: true,
        titleModel: 'current_model',
        modelDisplayLabel: 'Tokenhouse',
      }),
    read: readYamlText,
    hasKey: true,
  },
  environment: noVariables,
  contextMin: 0,
  needsTools: false,
  then: 'Start LibreChat again. In a container, the service is not at localhost: give its address with --url.',
};

export const clients = {
  claude,
  codex,
  opencode,
  cline,
  zed,
  continue: continueDev,
  'open-webui': openWebUi,
  librechat: libreChat,
} as const satisfies Readonly<Record<string, Client>>;

export type ClientName = keyof typeof clients;
