import Type from 'typebox';

import { cookieOf, sessionCookie } from '../../accounts/users/cookies.ts';
import { notThere } from '../input.ts';
import { Reply, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { loseWayIn, personOf } from './me.ts';
import { askAuth, authHeaders, endEarlier, done, withCookies } from './sign-in.ts';

const tag = 'Sign-in';
const providerId = Type.Object({ provider: Type.String({ pattern: '^[a-z0-9][a-z0-9-]{0,31}$' }) });
const sent = Type.Optional(Type.String({ maxLength: 4096 }));

/** Sign-in at the OpenID Connect providers of the configuration. */
export const oidcRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/auth/providers',
    operationId: 'listProviders',
    tag,
    summary: 'List ways to sign in',
    description: 'The configured providers, and whether everybody may sign up.',
    access: 'anyone',
    answers: [
      {
        status: 200,
        description: 'The providers.',
        schema: Type.Object({
          sign_up: Type.Union([Type.Literal('open'), Type.Literal('invitation')]),
          data: Type.Array(Type.Object({ id: Type.String(), name: Type.String() })),
        }),
      },
    ],
    handle: ({ services }) => {
      const { signUp, oidc } = services.config().signIn;
      return Promise.resolve({ sign_up: signUp, data: oidc.map(({ id, name }) => ({ id, name })) });
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/oidc/{provider}',
    operationId: 'beginOidc',
    tag,
    summary: 'Start to sign in at a provider',
    description:
      'Returns the address to send the browser to. A cookie binds the way back to this browser, for ten minutes.',
    access: 'anyone',
    params: providerId,
    answers: [{ status: 200, description: 'Go there.', schema: Type.Object({ url: Type.String() }) }],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { provider } = call.params;
      const { services } = call;
      if (!services.config().signIn.oidc.some(({ id }) => id === provider)) throw notThere();
      const home = `${services.accountUrl()}/`;
      const { response, cookies } = await askAuth(
        call,
        (auth, headers) =>
          auth.api.signInSocial({
            body: { provider, callbackURL: home, errorCallbackURL: `${home}?sign_in=failed`, disableRedirect: true },
            headers,
            returnHeaders: true,
          }),
        provider,
      );
      return withCookies(200, { url: (response as { readonly url: string }).url }, cookies);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/providers/{provider}',
    operationId: 'unlinkProvider',
    tag,
    summary: 'Unlink a provider from you',
    description:
      'Whom the provider knows as you no longer signs in as you; sessions go on. Whoever signs in there with your address, confirmed, is linked again. 409: you could not sign in without it.',
    access: 'user',
    stepUp: true,
    params: providerId,
    answers: [done],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { provider } = call.params;
      await loseWayIn(call, { kind: 'provider', id: provider });
      await call.audit({ action: 'provider.unlink', target: personOf(call).userId, before: { provider } });
      return { done: true };
    },
  }),
  route({
    method: 'get',
    path: '/v1/auth/callback/{provider}',
    operationId: 'endOidc',
    tag,
    summary: 'Return from a provider',
    description:
      'The provider sends the browser here. Signs in a person who is known by their subject, or by a confirmed address of an allowed domain, and redirects to the start page, with `sign_in=failed` on failure.',
    access: 'anyone',
    params: providerId,
    query: Type.Object({
      code: sent,
      state: sent,
      error: sent,
      error_description: sent,
      error_uri: sent,
      iss: sent,
      session_state: sent,
      scope: sent,
      authuser: sent,
      hd: sent,
      prompt: sent,
    }),
    answers: [{ status: 302, description: 'Redirect to the start page, signed in or not.' }],
    errors: ['http_404'],
    handle: async (call) => {
      const { params, query, services } = call;
      const { users } = services;
      if (!services.config().signIn.oidc.some(({ id }) => id === params.provider)) throw notThere();
      const auth = await users.authFor(params.provider);
      const home = `${services.accountUrl()}/`;
      const failed = new Reply(302, { location: `${home}?sign_in=failed` });
      const answered = (await auth.api
        .callbackOAuth({
          params: { id: params.provider },
          query: { ...query },
          method: 'GET',
          headers: authHeaders(call),
          asResponse: true,
        } as never)
        .catch(() => undefined)) as Response | undefined;
      if (answered === undefined || answered.headers.get('location') !== home) return failed;
      const cookies = answered.headers.getSetCookie();
      // Finds the signed-in user by the cookie that was just set.
      const held = cookieOf(
        cookies.map((cookie) => cookie.split(';')[0]!).join('; '),
        sessionCookie(services.accountUrl()),
      );
      const person =
        held === undefined ? undefined : await users.signedIn(`${sessionCookie(services.accountUrl())}=${held}`);
      if (person === undefined) return failed;
      const { cookie } = call.headers;
      const before = typeof cookie === 'string' ? await users.signedIn(cookie) : undefined;
      if (before !== undefined) await endEarlier(call, before);
      await users.welcome(person.userId, person.name);
      await call.audit({ action: 'session.create', target: person.userId, by: person });
      return new Reply(302, { location: home, 'set-cookie': cookies });
    },
  }),
];
