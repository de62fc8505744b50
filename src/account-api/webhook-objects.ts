import Type from 'typebox';

import { eventTypes } from '../notifications/webhooks/events.ts';
import { urlCharactersMax } from '../notifications/webhooks/target.ts';
import type { WebhookDelivery, WebhookEndpoint } from '../store/repositories/webhooks.ts';
import { secondsOf, secondsOrNull } from './wire.ts';

const types = Type.Union(eventTypes.map((type) => Type.Literal(type)));

/** Settings of an endpoint by its owner. */
export const endpointSettings = {
  url: Type.String({
    minLength: 1,
    maxLength: urlCharactersMax,
    description: '`https://…` on port 443, outside of private networks. Redirects are not followed.',
  }),
  description: Type.String({ maxLength: 200, pattern: '^[^\\x00-\\x1f\\x7f]*$' }),
  events: Type.Union([Type.Array(types, { maxItems: eventTypes.length }), Type.Null()], {
    description: 'Types of the events that are sent; null: all, including types added later.',
  }),
};

export const endpointFields = {
  id: Type.String({ description: '`whe_…`' }),
  object: Type.Literal('webhook_endpoint'),
  ...endpointSettings,
  status: Type.Union([Type.Literal('active'), Type.Literal('disabled')]),
  disabled_reason: Type.Union([Type.Literal('asked'), Type.Literal('failing'), Type.Null()], {
    description: '`failing`: no delivery has succeeded for days. `PATCH` with `enabled: true` activates it again.',
  }),
  failing_since: Type.Union([Type.Integer(), Type.Null()], {
    description: 'Unix seconds; null: the last delivery succeeded.',
  }),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
};
export const endpointSchema = Type.Object(endpointFields);

export const deliveryFields = {
  id: Type.String({ description: '`whd_…`' }),
  object: Type.Literal('webhook_delivery'),
  endpoint_id: Type.String(),
  event_id: Type.String({ description: '`Webhook-Id`: the same in each attempt.' }),
  type: Type.String(),
  state: Type.Union(
    ['waiting', 'delivered', 'failed', 'dropped'].map((state) => Type.Literal(state)),
    { description: '`dropped`: too many deliveries were waiting, or the endpoint was deleted.' },
  ),
  tries: Type.Integer(),
  created_at: Type.Integer(),
  tried_at: Type.Union([Type.Integer(), Type.Null()]),
  delivered_at: Type.Union([Type.Integer(), Type.Null()]),
  next_try_at: Type.Union([Type.Integer(), Type.Null()]),
  response_status: Type.Union([Type.Integer(), Type.Null()]),
  response_body: Type.Union([Type.String(), Type.Null()], { description: 'The first kilobyte of the response.' }),
  failure: Type.Union([Type.String(), Type.Null()]),
  body: Type.String({ description: 'The body, as it is sent.' }),
};
export const deliverySchema = Type.Object(deliveryFields);

export const endpointObject = (endpoint: WebhookEndpoint) => ({
  id: endpoint.id,
  object: 'webhook_endpoint' as const,
  url: endpoint.url,
  description: endpoint.description,
  events: endpoint.events,
  status: endpoint.status,
  disabled_reason: endpoint.reason,
  failing_since: secondsOrNull(endpoint.failingSince),
  created_at: secondsOf(endpoint.createdAt),
});

export const deliveryObject = (delivery: WebhookDelivery) => ({
  id: delivery.id,
  object: 'webhook_delivery' as const,
  endpoint_id: delivery.endpointId,
  event_id: delivery.eventId,
  type: delivery.type,
  state: delivery.state,
  tries: delivery.tries,
  created_at: secondsOf(delivery.createdAt),
  tried_at: secondsOrNull(delivery.triedAt),
  delivered_at: secondsOrNull(delivery.deliveredAt),
  next_try_at: secondsOrNull(delivery.nextAt),
  response_status: delivery.status,
  response_body: delivery.answer,
  failure: delivery.failure,
  body: delivery.body,
});
