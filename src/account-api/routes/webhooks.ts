import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import type { WebhookEndpoint } from '../../store/repositories/webhooks.ts';
import { endpointsMax, hexOf } from '../../notifications/webhooks/events.ts';
import { notThere } from '../input.ts';
import {
  deliveryObject,
  deliverySchema,
  endpointFields,
  endpointObject,
  endpointSchema,
  endpointSettings,
} from '../webhook-objects.ts';
import { pageLimit, listOf, pageQuery, listSchema } from '../wire.ts';
import { mayManage, Reply, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';

const endpointId = Type.String({ pattern: '^whe_[0-9a-f]{32}$' });
const params = Type.Object({ id: endpointId });
const idOf = ({ id }: { readonly id: string }): string => id;
const common = { tag: 'Webhooks', access: mayManage } as const;

export const webhookRoutes: readonly AccountRoute[] = [
  route({
    ...common,
    method: 'get',
    path: '/v1/webhook_endpoints',
    operationId: 'listWebhookEndpoints',
    summary: 'List webhook endpoints',
    description: 'Newest first. Their secrets are not shown.',
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of webhook endpoints.', schema: listSchema(endpointSchema) }],
    handle: async ({ account, query: { limit: asked, after }, services }) => {
      const limit = pageLimit(asked);
      return listOf(
        await services.operations.repositories.listWebhookEndpoints({
          accountId: account.id,
          limit: limit + 1,
          ...(after === undefined ? {} : { after }),
        }),
        limit,
        endpointObject,
        idOf,
      );
    },
  }),
  route({
    ...common,
    method: 'post',
    path: '/v1/webhook_endpoints',
    operationId: 'createWebhookEndpoint',
    summary: 'Add a webhook endpoint',
    description: `At most ${endpointsMax} of an account. The answer has the secret that signs its deliveries; it is shown only now.`,
    stepUp: true,
    body: Type.Object(
      {
        url: endpointSettings.url,
        description: Type.Optional(endpointSettings.description),
        events: Type.Optional(endpointSettings.events),
      },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 201,
        description: 'The endpoint with its secret.',
        schema: Type.Object({ ...endpointFields, secret: Type.String({ description: '`whsec_…`' }) }),
      },
    ],
    errors: ['http_409', 'unsupported_value'],
    handle: async (call) => {
      const { account, body, services } = call;
      const { repositories, newId, now } = services.operations;
      services.checkWebhookUrl(body.url);
      const id = `whe_${hexOf(newId())}`;
      const isAdded = await repositories.addWebhookEndpoint({
        id,
        accountId: account.id,
        url: body.url,
        description: body.description ?? '',
        events: body.events ?? null,
        at: now(),
        max: endpointsMax,
      });
      if (!isAdded)
        throw new ApiError('http_409', `An account has at most ${endpointsMax} webhook endpoints. Delete one first.`);
      const endpoint = await repositories.getWebhookEndpoint({ accountId: account.id, id });
      if (endpoint === undefined) throw notThere();
      const shown = endpointObject(endpoint);
      await call.audit({ action: 'webhook_endpoint.create', target: id, after: shown });
      return { ...shown, secret: services.webhookSecret(id, endpoint.secretVersion) };
    },
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/webhook_endpoints/{id}',
    operationId: 'getWebhookEndpoint',
    summary: 'Get a webhook endpoint',
    description: 'Without its secret.',
    params,
    answers: [{ status: 200, description: 'The endpoint.', schema: endpointSchema }],
    errors: ['http_404'],
    handle: async ({ account, params: { id }, services }) =>
      endpointObject(found(await services.operations.repositories.getWebhookEndpoint({ accountId: account.id, id }))),
  }),
  route({
    ...common,
    method: 'patch',
    path: '/v1/webhook_endpoints/{id}',
    operationId: 'changeWebhookEndpoint',
    summary: 'Change a webhook endpoint',
    description: 'Fields that are left out stay. `enabled: true` activates a disabled endpoint.',
    params,
    body: Type.Object(
      {
        url: Type.Optional(endpointSettings.url),
        description: Type.Optional(endpointSettings.description),
        events: Type.Optional(endpointSettings.events),
        enabled: Type.Optional(Type.Boolean()),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'The endpoint as it is now.', schema: endpointSchema }],
    errors: ['http_404', 'unsupported_value'],
    handle: async (call) => {
      const { account, body, params: at, services } = call;
      const { repositories, now } = services.operations;
      const before = found(await repositories.getWebhookEndpoint({ accountId: account.id, id: at.id }));
      if (body.url !== undefined) services.checkWebhookUrl(body.url);
      const changed = await repositories.changeWebhookEndpoint({
        accountId: account.id,
        id: at.id,
        at: now(),
        ...(body.url === undefined ? {} : { url: body.url }),
        ...(body.description === undefined ? {} : { description: body.description }),
        ...(body.events === undefined ? {} : { events: body.events }),
        ...(body.enabled === undefined ? {} : { isEnabled: body.enabled }),
      });
      const shown = endpointObject(found(changed));
      await call.audit({
        action: 'webhook_endpoint.change',
        target: at.id,
        before: endpointObject(before),
        after: shown,
      });
      return shown;
    },
  }),
  route({
    ...common,
    method: 'delete',
    path: '/v1/webhook_endpoints/{id}',
    operationId: 'deleteWebhookEndpoint',
    summary: 'Delete a webhook endpoint',
    description: 'Waiting deliveries are no longer sent.',
    params,
    answers: [{ status: 204, description: 'The endpoint is deleted.' }],
    errors: ['http_404'],
    handle: async (call) => {
      const { account, params: at, services } = call;
      const { repositories, now } = services.operations;
      if (!(await repositories.deleteWebhookEndpoint({ accountId: account.id, id: at.id, at: now() })))
        throw notThere();
      await call.audit({ action: 'webhook_endpoint.delete', target: at.id });
      return new Reply(204, {});
    },
  }),
  route({
    ...common,
    method: 'post',
    path: '/v1/webhook_endpoints/{id}/test',
    operationId: 'testWebhookEndpoint',
    summary: 'Send a ping',
    description: 'Sends an event of type `ping`, even if the endpoint does not subscribe to it.',
    params,
    answers: [
      {
        status: 202,
        description: 'The ping is on its way; the list of deliveries shows the outcome.',
        schema: Type.Object({ event_id: Type.String() }),
      },
    ],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { account, params: at, services } = call;
      const endpoint = found(
        await services.operations.repositories.getWebhookEndpoint({ accountId: account.id, id: at.id }),
      );
      if (endpoint.status !== 'active')
        throw new ApiError('http_409', 'This endpoint is disabled. Activate it first: PATCH with `enabled: true`.');
      const pinged = await services.events.ping(account.id, at.id);
      if (pinged.waiting === 0)
        throw new ApiError('http_409', 'Too many deliveries of the account are waiting. Try again later.');
      await call.audit({ action: 'webhook_endpoint.test', target: at.id });
      return { event_id: pinged.eventId };
    },
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/webhook_endpoints/{id}/deliveries',
    operationId: 'listWebhookDeliveries',
    summary: 'List deliveries',
    description: 'Deliveries of the last 30 days, newest first.',
    params,
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of webhook endpoints.', schema: listSchema(deliverySchema) }],
    errors: ['http_404'],
    handle: async ({ account, params: { id }, query: { limit: asked, after }, services }) => {
      const limit = pageLimit(asked);
      const { repositories } = services.operations;
      found(await repositories.getWebhookEndpoint({ accountId: account.id, id }));
      const rows = await repositories.listDeliveries({
        accountId: account.id,
        endpointId: id,
        limit: limit + 1,
        ...(after === undefined ? {} : { after }),
      });
      return listOf(rows, limit, deliveryObject, idOf);
    },
  }),
  route({
    ...common,
    method: 'post',
    path: '/v1/webhook_deliveries/{id}/replay',
    operationId: 'replayWebhookDelivery',
    summary: 'Send a delivery again',
    description: 'The same body with the same `Webhook-Id`; its attempts start again.',
    params: Type.Object({ id: Type.String({ pattern: '^whd_[0-9a-f]{32}$' }) }),
    answers: [{ status: 202, description: 'The delivery is on its way.', schema: deliverySchema }],
    errors: ['http_404'],
    handle: async (call) => {
      const { account, params: at, services } = call;
      const { repositories, now } = services.operations;
      const delivery = await repositories.replayDelivery({ accountId: account.id, id: at.id, at: now() });
      if (delivery === undefined) throw notThere();
      await call.audit({ action: 'webhook_delivery.replay', target: at.id });
      return deliveryObject(delivery);
    },
  }),
];

function found(endpoint: WebhookEndpoint | undefined): WebhookEndpoint {
  if (endpoint === undefined) throw notThere();
  return endpoint;
}
