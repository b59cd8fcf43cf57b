/** The native contract, route by route. */
import { Type } from '../../schema/typebox.ts'
import type { SessionRef } from '../../core/index.ts'
import {
  AnswerRequest,
  KeyTurnRequest,
  LinkRequest,
  SessionRequest,
  TurnRequest,
} from '../../wire/bodies.ts'
import { EVENT_STREAM_TYPE } from '../../wire/server-sent-events.ts'
import type { Exchange } from '../exchange.ts'
import { json, type RouteAnswer, type Header, type Route } from '../route.ts'
import { answerAsk, getAsks } from './asks.ts'
import { getChanges } from './changes.ts'
import { getEvents, sessionOfStream } from './events.ts'
import { createLink, getLinks, revokeLink } from './links.ts'
import { CHANGES_QUERY, CLOSE_QUERY, EVENTS_QUERY, LIST_QUERY } from './queries.ts'
import {
  ChangesPage,
  AnsweredAsk,
  AskList,
  CancelledRequest,
  ClosedSession,
  CreatedLink,
  EventPage,
  LinkList,
  Message,
  ResolvedSession,
  RevokedLink,
  Session,
  SessionPage,
  TurnOfSession,
} from './schemas.ts'
import { closeSession, createSession, getSession, listSessions, sessionOfBody } from './sessions.ts'
import { getTranscript, TRANSCRIPT_TYPE } from './transcript.ts'
import { cancelTurn, getTurn, postKeyTurn, postSessionTurn } from './turns.ts'

const events = { type: 'string', description: 'Server-sent events.' } as const

function sessionOfPath({ params: [id = ''] }: Exchange): SessionRef {
  return { id }
}

const turnHeaders: readonly Header[] = [
  { name: 'Idempotency-Key', description: 'The same key and input join the same turn.' },
  {
    name: 'Prefer',
    description: 'respond-async: answer with 202 as soon as the turn is recorded.',
  },
]

const turnAnswers: Readonly<Record<number, RouteAnswer>> = {
  200: {
    description: 'The turn when it is over, or its events as they happen.',
    content: { 'application/json': TurnOfSession, [EVENT_STREAM_TYPE]: events },
  },
  202: json('The turn is recorded; Location says where.', TurnOfSession),
}

const sessionRoutes: readonly Route[] = [
  {
    method: 'POST',
    path: '/v1/sessions',
    name: 'createSession',
    summary: 'Find the session of a key or an id, or create it',
    operation: 'session.create',
    body: SessionRequest,
    answers: {
      200: json('It was there.', ResolvedSession),
      201: json('It was created by this very request.', ResolvedSession),
    },
    refusals: [409, 410, 413, 415, 429],
    session: sessionOfBody,
    handle: createSession,
  },
  {
    method: 'GET',
    path: '/v1/sessions',
    name: 'listSessions',
    summary: 'List sessions, newest first; internal ones are never listed',
    operation: 'session.read',
    query: LIST_QUERY,
    answers: { 200: json('One page.', SessionPage) },
    handle: listSessions,
  },
  {
    method: 'GET',
    path: '/v1/sessions/:id',
    name: 'getSession',
    summary: 'A session as it is now, open or closed',
    operation: 'session.read',
    answers: { 200: json('The session.', Session) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: getSession,
  },
  {
    method: 'DELETE',
    path: '/v1/sessions/:id',
    name: 'closeSession',
    summary: 'Close a session for good; closing it again changes nothing',
    operation: 'session.close',
    query: CLOSE_QUERY,
    answers: { 200: json('It is closed.', ClosedSession) },
    refusals: [404],
    session: sessionOfPath,
    handle: closeSession,
  },
]

const changeRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/v1/changes',
    name: 'getChanges',
    summary: 'The sessions that changed after a position: one page, or as they change',
    operation: 'change.read',
    query: CHANGES_QUERY,
    headers: [
      {
        name: 'Last-Event-ID',
        description: 'On a stream: the id of the last event that was seen.',
      },
    ],
    answers: {
      200: {
        description: 'A page, or the stream.',
        content: { 'application/json': ChangesPage, [EVENT_STREAM_TYPE]: events },
      },
    },
    refusals: [406, 410],
    handle: getChanges,
  },
]

const turnRoutes: readonly Route[] = [
  {
    method: 'POST',
    path: '/v1/sessions/:id/turns',
    name: 'postSessionTurn',
    summary: 'Run a turn in a session',
    operation: 'turn.run',
    headers: turnHeaders,
    body: TurnRequest,
    answers: turnAnswers,
    refusals: [404, 406, 409, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: postSessionTurn,
  },
  {
    method: 'POST',
    path: '/v1/keys/:key/turns',
    name: 'postKeyTurn',
    summary: 'Run a turn in the session of a key, creating the session in the same step if need be',
    operation: 'turn.run',
    headers: turnHeaders,
    body: KeyTurnRequest,
    answers: turnAnswers,
    refusals: [406, 409, 413, 415, 429],
    session: ({ params: [key = ''] }) => ({ key }),
    handle: postKeyTurn,
  },
  {
    method: 'GET',
    path: '/v1/sessions/:id/turns/:turn',
    name: 'getTurn',
    summary: 'A turn as it is now',
    operation: 'session.read',
    answers: { 200: json('The turn.', TurnOfSession) },
    refusals: [404, 410],
    handle: getTurn,
  },
  {
    method: 'DELETE',
    path: '/v1/sessions/:id/turns/:turn',
    name: 'cancelTurn',
    summary: 'Cancel a turn that waits or runs, or a request that waits to be admitted',
    operation: 'turn.cancel',
    answers: {
      200: json(
        'The turn, which is over, or the request, of which nothing has happened.',
        Type.Union([TurnOfSession, CancelledRequest]),
      ),
    },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: cancelTurn,
  },
]

const logRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/v1/sessions/:id/events',
    name: 'getEvents',
    summary: "A session's events: one page, or from a position on as they happen",
    operation: 'session.read',
    query: EVENTS_QUERY,
    headers: [
      {
        name: 'Last-Event-ID',
        description: 'On a stream: the id of the last event that was seen.',
      },
    ],
    answers: {
      200: {
        description: 'A page, or the stream.',
        content: { 'application/json': EventPage, [EVENT_STREAM_TYPE]: events },
      },
    },
    refusals: [404, 406, 410],
    session: sessionOfStream,
    handle: getEvents,
  },
  {
    method: 'GET',
    path: '/v1/sessions/:id/transcript',
    name: 'getTranscript',
    summary: 'The conversation, one message per line',
    operation: 'session.read',
    answers: {
      200: {
        description: 'JSON lines.',
        content: { [TRANSCRIPT_TYPE]: Message },
      },
    },
    refusals: [404, 406, 410],
    handle: getTranscript,
  },
]

const askRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/v1/sessions/:id/asks',
    name: 'getAsks',
    summary: 'The questions that wait for an answer',
    operation: 'session.read',
    answers: { 200: json('The asks.', AskList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: getAsks,
  },
  {
    method: 'POST',
    path: '/v1/sessions/:id/asks/:ask',
    name: 'answerAsk',
    summary: 'RouteAnswer a question; the first valid answer wins',
    operation: 'ask.answer',
    body: AnswerRequest,
    answers: { 200: json('It is answered.', AnsweredAsk) },
    refusals: [404, 409, 410, 413, 415],
    session: sessionOfPath,
    handle: answerAsk,
  },
]

const linkRoutes: readonly Route[] = [
  {
    method: 'POST',
    path: '/v1/sessions/:id/links',
    name: 'createLink',
    summary: 'Make a link that lets its holder into this one session',
    operation: 'link.manage',
    body: LinkRequest,
    answers: { 201: json('The link, with its token.', CreatedLink) },
    refusals: [404, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: createLink,
  },
  {
    method: 'GET',
    path: '/v1/sessions/:id/links',
    name: 'getLinks',
    summary: 'The links of a session, without their tokens',
    operation: 'link.manage',
    answers: { 200: json('The links.', LinkList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: getLinks,
  },
  {
    method: 'DELETE',
    path: '/v1/sessions/:id/links/:link',
    name: 'revokeLink',
    summary: 'Revoke a link; revoking it again changes nothing',
    operation: 'link.manage',
    answers: { 200: json('Nobody can attach by it any more.', RevokedLink) },
    refusals: [404],
    session: sessionOfPath,
    handle: revokeLink,
  },
]

export const NATIVE_ROUTES: readonly Route[] = [
  ...sessionRoutes,
  ...changeRoutes,
  ...turnRoutes,
  ...logRoutes,
  ...askRoutes,
  ...linkRoutes,
]
