import { Secret } from '../secret.ts';
import {
  choice,
  group,
  list,
  reportTwins,
  required,
  text,
  textLike,
  url,
  type Setting,
  type ValueOf,
} from '../setting.ts';

/** Domains are compared in lower case. */
const domain: Setting<string> = {
  ...textLike('^[A-Za-z0-9.-]{1,253}$', 'a domain', { example: 'example.org' }),
  read: (written) => (written as string).toLowerCase(),
};

const provider = group(
  'an OpenID Connect provider',
  {
    id: required(
      textLike('^[a-z0-9][a-z0-9-]{0,31}$', 'id in URLs; the redirect URI is <account host>/v1/auth/callback/<id>', {
        example: 'company',
      }),
    ),
    name: text('label of the sign-in button; the id when left out', { example: 'Example Company' }),
    issuer: required(
      url('its issuer; the rest is read from <issuer>/.well-known/openid-configuration', 'https://login.example.org'),
    ),
    client_id: required(text('client id at the provider', { example: 'tokenhouse' })),
    client_secret_env: textLike('^[A-Za-z_][A-Za-z0-9_]*$', 'environment variable with the client secret', {
      example: 'COMPANY_CLIENT_SECRET',
    }),
    domains: required(
      list(domain, {
        minItems: 1,
        maxItems: 1000,
        description: 'e-mail domains that may sign in through the provider',
        example: ['example.org'],
      }),
    ),
  },
  ({ clientSecretEnv: variable, name, ...others }, at, { environment, report }) => {
    if (!isPrivateOrSecure(others.issuer))
      report(
        [...at, 'issuer'],
        'without encryption an attacker on the network could sign in as anybody; write an https URL',
      );
    const secret = variable === undefined ? undefined : environment.variable(variable);
    if (variable !== undefined && secret === undefined)
      report(
        [...at, 'client_secret_env'],
        `the environment variable ${variable} is not set; set it, or remove this line if the provider needs no secret`,
      );
    const clientSecret = secret === undefined ? undefined : new Secret(secret);
    return { ...others, name: name ?? others.id, clientSecret };
  },
);

function isPrivateOrSecure(issuer: string): boolean {
  const { protocol, hostname } = URL.canParse(issuer) ? new URL(issuer) : { protocol: '', hostname: '' };
  return protocol === 'https:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

export const signIn = group('how people sign in to the account host', {
  sign_up: choice(
    ['invitation', 'open'],
    'invitation: only invited people can sign up; open: everybody can, and gets an account',
    { default: 'invitation' },
  ),
  oidc: list(
    provider,
    {
      maxItems: 16,
      description: 'providers that people may sign in with',
      example: [
        { id: 'company', issuer: 'https://login.example.org', client_id: 'tokenhouse', domains: ['example.org'] },
      ],
    },
    (providers, at, { report }) => {
      reportTwins(
        providers,
        ({ id }) => id,
        ([index, { id }]) => report([...at, index, 'id'], `another provider is called ${id}; rename one`),
      );
      return providers.map(([, each]) => each);
    },
  ),
});

export type SignInConfig = ValueOf<typeof signIn>;
export type OidcConfig = SignInConfig['oidc'][number];
