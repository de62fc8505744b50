/** What the command line has the running service do that notifies customers; one line of JSON. */
export type NotificationRequest =
  /** Closes the months that are over, as the job does. */
  | { readonly kind: 'issue_invoices' }
  /** Mails an existing invitation to own an account. */
  | { readonly kind: 'invite'; readonly accountId: string; readonly email: string; readonly token: string }
  /** Sends a ping to an endpoint. */
  | { readonly kind: 'test_webhook'; readonly endpointId: string }
  /** Sends a delivery again. */
  | { readonly kind: 'replay_webhook'; readonly deliveryId: string };

export interface Reported {
  /** What was done, for display. */
  readonly done: string;
  /** Id of the event or the delivery; null: there is none. */
  readonly id: string | null;
}
