import type { Kysely } from 'kysely';
import * as audit from './audit-queries.ts';
import * as attempts from './attempt-queries.ts';
import { authStore } from './auth-queries.ts';
import * as accounts from './account-queries.ts';
import * as alerts from './alert-queries.ts';
import * as notices from './notice-queries.ts';
import * as budgets from './budget-queries.ts';
import * as erasing from './erase-account.ts';
import * as persons from './erase-person.ts';
import { releasePerson } from './release-person.ts';
import type { Database } from './database.ts';
import * as changes from './change-queries.ts';
import * as keys from './key-queries.ts';
import * as generations from './generation-queries.ts';
import * as keptItems from './kept-items.ts';
import * as files from './file-queries.ts';
import * as limitWindows from './limit-windows.ts';
import * as idempotency from './idempotency.ts';
import * as mail from './mail-queries.ts';
import * as credits from './credit-queries.ts';
import * as autoTopups from './auto-topup-queries.ts';
import * as promotions from './promotion-queries.ts';
import * as payments from './payment-queries.ts';
import * as demoPayments from './demo-payment-queries.ts';
import * as invoices from './invoice-queries.ts';
import * as receipts from './receipt-queries.ts';
import * as people from './people-queries.ts';
import * as queries from './queries.ts';
import * as reports from './report-queries.ts';
import * as rollUps from './roll-ups.ts';
import * as webhooks from './webhook-queries.ts';

/** What the desk does for the main thread, by name: one line here makes a query callable from there. */
const deskOperations = {
  listAccounts: queries.listAccounts,
  getAccount: queries.getAccount,
  listCustomers: accounts.listCustomers,
  heldByAccounts: accounts.heldByAccounts,
  chargedUsage: accounts.chargedUsage,
  eraseAccount: erasing.eraseAccount,
  exportPage: erasing.exportPage,
  whyPersonStays: persons.whyPersonStays,
  erasePerson: persons.erasePerson,
  createKey: queries.createKey,
  listKeys: queries.listKeys,
  revokeKey: queries.revokeKey,
  loadKeys: queries.loadKeys,
  allowKey: queries.allowKey,
  allowAccount: queries.allowAccount,
  planAccount: queries.planAccount,
  limitAccount: queries.limitAccount,
  limitKey: queries.limitKey,
  editKey: queries.editKey,
  rotateKey: queries.rotateKey,
  editAccount: queries.editAccount,
  getBudget: budgets.getBudget,
  budgetsOf: budgets.budgetsOf,
  spentBesideBudget: budgets.spentBesideBudget,
  loadLimitWindows: limitWindows.loadLimitWindows,
  addLimitWindows: limitWindows.addLimitWindows,
  limitWindowsOf: limitWindows.limitWindowsOf,
  addAccountPrice: queries.addAccountPrice,
  endAccountPrices: queries.endAccountPrices,
  listAccountPrices: queries.listAccountPrices,
  findChange: changes.findChange,
  listTransfers: queries.listTransfers,
  listUsage: queries.listUsage,
  findUsage: queries.findUsage,
  sumUsage: queries.sumUsage,
  sumUsageByTag: queries.sumUsageByTag,
  recomputeUsageHours: rollUps.recomputeUsageHours,
  recomputeUsageDays: (db: Kysely<Database>, _request: object) => rollUps.recomputeUsageDays(db),
  forgetChanges: changes.forgetChanges,
  keepItems: keptItems.keepItems,
  findKeptItems: keptItems.findKeptItems,
  tidyKeptItems: keptItems.tidyKeptItems,
  deleteKeptItems: keptItems.deleteKeptItems,
  beginFile: files.beginFile,
  finishFile: files.finishFile,
  getFile: files.getFile,
  listFiles: files.listFiles,
  leaveFile: files.leaveFile,
  forgetFiles: files.forgetFiles,
  unreadyFiles: files.unreadyFiles,
  claimRequest: idempotency.claimRequest,
  keepAnswer: idempotency.keepAnswer,
  leaveRequest: idempotency.leaveRequest,
  tidyRequests: idempotency.tidyRequests,
  invoicesSince: invoices.invoicesSince,
  readBooks: invoices.readBooks,
  transferredBefore: invoices.transferredBefore,
  listOpenBooks: invoices.listOpenBooks,
  closeBooks: invoices.closeBooks,
  listInvoices: invoices.listInvoices,
  getInvoice: invoices.getInvoice,
  statementAt: invoices.statementAt,
  lastStatement: invoices.lastStatement,
  receiptsSince: receipts.receiptsSince,
  listUnreceipted: receipts.listUnreceipted,
  listUncorrectedReturns: receipts.listUncorrectedReturns,
  issueReceipt: receipts.issueReceipt,
  listReceipts: receipts.listReceipts,
  getReceipt: receipts.getReceipt,
  receiptsOfTopups: receipts.receiptsOfTopups,
  addAlert: alerts.addAlert,
  listAlerts: alerts.listAlerts,
  getAlert: alerts.getAlert,
  changeAlert: alerts.changeAlert,
  deleteAlert: alerts.deleteAlert,
  alertsToLookAt: alerts.alertsToLookAt,
  noteLook: alerts.noteLook,
  listNotices: notices.listNotices,
  forgetNotice: notices.forgetNotice,
  memberAddresses: notices.memberAddresses,
  addWebhookEndpoint: webhooks.addWebhookEndpoint,
  listWebhookEndpoints: webhooks.listWebhookEndpoints,
  getWebhookEndpoint: webhooks.getWebhookEndpoint,
  changeWebhookEndpoint: webhooks.changeWebhookEndpoint,
  deleteWebhookEndpoint: webhooks.deleteWebhookEndpoint,
  addWebhookEvent: webhooks.addWebhookEvent,
  claimDeliveries: webhooks.claimDeliveries,
  noteTry: webhooks.noteTry,
  listDeliveries: webhooks.listDeliveries,
  replayDelivery: webhooks.replayDelivery,
  forgetDeliveries: webhooks.forgetDeliveries,
  findPresentedKey: keys.findPresentedKey,
  getKey: keys.getKey,
  listAccountKeys: keys.listAccountKeys,
  lastUseOfKeys: keys.lastUseOfKeys,
  beginAttempt: attempts.beginAttempt,
  attemptWasRight: attempts.attemptWasRight,
  forgetAttempts: attempts.forgetAttempts,
  recordAudit: audit.recordAudit,
  listAudit: audit.listAudit,
  addMail: mail.addMail,
  claimMail: mail.claimMail,
  noteMailAttempt: mail.noteMailAttempt,
  listMail: mail.listMail,
  getMail: mail.getMail,
  forgetMail: mail.forgetMail,
  heldOf: credits.heldOf,
  creditSummary: credits.creditSummary,
  listLedger: credits.listLedger,
  getAutoTopup: autoTopups.getAutoTopup,
  setAutoTopup: autoTopups.setAutoTopup,
  dueAutoTopups: autoTopups.dueAutoTopups,
  claimAutoTopup: autoTopups.claimAutoTopup,
  chargedSince: autoTopups.chargedSince,
  endAutoTopup: autoTopups.endAutoTopup,
  failAutoTopup: autoTopups.failAutoTopup,
  payersOf: autoTopups.payersOf,
  duePromotions: promotions.duePromotions,
  listPromotions: promotions.listPromotions,
  promotionUnused: promotions.promotionUnused,
  closePromotion: promotions.closePromotion,
  beginTopup: payments.beginTopup,
  noteCheckout: payments.noteCheckout,
  getTopup: payments.getTopup,
  listTopups: payments.listTopups,
  findPayment: payments.findPayment,
  findPaymentEvent: payments.findPaymentEvent,
  recordPaymentEvent: payments.recordPaymentEvent,
  paymentsSeenUntil: payments.paymentsSeenUntil,
  notePaymentsSeen: payments.notePaymentsSeen,
  findPaymentReturn: payments.findPaymentReturn,
  recordUndoneReturn: payments.recordUndoneReturn,
  savePaymentMethod: payments.savePaymentMethod,
  getPaymentMethod: payments.getPaymentMethod,
  makeDemoObject: demoPayments.makeDemoObject,
  getDemoObject: demoPayments.getDemoObject,
  changeDemoObject: demoPayments.changeDemoObject,
  listDemoObjects: demoPayments.listDemoObjects,
  spendSince: reports.spendSince,
  spendOfKeys: reports.spendOfKeys,
  reportUsage: reports.reportUsage,
  reportRefunds: reports.reportRefunds,
  refundsBetween: reports.refundsBetween,
  refundsOf: reports.refundsOf,
  authStore,
  findSession: people.findSession,
  listSessions: people.listSessions,
  endSessions: people.endSessions,
  forgetExpired: people.forgetExpired,
  findMembership: people.findMembership,
  listMemberships: people.listMemberships,
  listMembers: people.listMembers,
  getMember: people.getMember,
  setMemberRole: people.setMemberRole,
  addMember: people.addMember,
  createInvitation: people.createInvitation,
  listInvitations: people.listInvitations,
  deleteInvitation: people.deleteInvitation,
  findInvitation: people.findInvitation,
  isInvited: people.isInvited,
  acceptInvitation: people.acceptInvitation,
  hasOperator: people.hasOperator,
  hasPerson: people.hasPerson,
  joinAnew: people.joinAnew,
  setOwnerLink: people.setOwnerLink,
  getOwnerLink: people.getOwnerLink,
  isOwnerLink: people.isOwnerLink,
  createOwner: people.createOwner,
  releasePerson,
  keysOfMember: people.keysOfMember,
  listGenerations: generations.listGenerations,
  cursorOf: generations.cursorOf,
} as const;

type Operations = typeof deskOperations;
export type DeskOperation = keyof Operations;
export type DeskRequest<Name extends DeskOperation> = Parameters<Operations[Name]>[1];
export type DeskAnswer<Name extends DeskOperation> = Awaited<ReturnType<Operations[Name]>>;

/** Keys, lists and reports. Rejects with a StoreError. */
export type Desk = {
  readonly [Name in DeskOperation]: (request: DeskRequest<Name>) => Promise<DeskAnswer<Name>>;
};

/** The same operations on a connection at hand, without a thread: for the command line. */
export function deskOn(db: Kysely<Database>): Desk {
  const call = (name: DeskOperation) => (request: unknown) =>
    (deskOperations[name] as (db: Kysely<Database>, request: unknown) => Promise<unknown>)(db, request);
  return Object.fromEntries(
    (Object.keys(deskOperations) as DeskOperation[]).map((name) => [name, call(name)]),
  ) as unknown as Desk;
}
