/** Bugs planted in the wire: the connect door, the client, the frames and the attachments. */
import type { Mutant } from '../mutants.ts'

export const WIRE_MUTANTS: readonly Mutant[] = [
  {
    name: 'a watcher is recorded',
    file: 'core/session-handle.js',
    find: `if (options.role === 'watcher')`,
    replace: `if (options.role === 'nobody')`,
    catches: 'I9',
  },
  {
    name: 'a watcher that answers is let in as a driver, and counts as one to ask',
    file: 'doors/connect/entry.js',
    find: `const { role = 'driver', answers = [], auth } = hello;`,
    replace: `const { answers = [], auth } = hello;
    const role = answers.length > 0 ? 'driver' : (hello.role ?? 'driver');`,
    catches: 'I9',
  },
  {
    name: 'a watcher that is gone is still counted',
    file: 'core/attachment-handle.js',
    find: 'this.#live.watchers.remove(this.id);',
    replace: '',
    catches: 'I9',
  },
  {
    name: 'a lost client counts as one to ask for its whole grace time',
    file: 'core/attachments.js',
    find: 'const answersUntil = Math.min(graceUntil, moment.at + answerGraceMs);',
    replace: 'const answersUntil = graceUntil;',
    catches: 'I8',
  },
  {
    name: 'a lost client counts as one to ask no longer',
    file: 'core/asks.js',
    find: `state === 'live' ? Number.POSITIVE_INFINITY : (answersUntil ?? Number.NEGATIVE_INFINITY)`,
    replace: `state === 'live' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY`,
    catches: 'I8',
  },
  {
    name: 'a superseded connection goes on',
    file: 'doors/connect/connection.js',
    find: `this.refuse(new HoldfastError('superseded', 'continued in another connection'));`,
    replace: '',
    catches: 'I6',
  },
  {
    name: 'whoever is asked for a sign of life is taken for dead',
    file: 'doors/connect/connection.js',
    find: 'return this.waitForSign();',
    replace: 'return false;',
    catches: 'I7',
  },
  {
    name: 'whoever is asked for a sign of life is taken for alive',
    file: 'doors/connect/connection.js',
    find: 'return this.waitForSign();',
    replace: 'return true;',
    catches: 'I7',
  },
  {
    name: 'any word that was on its way is a sign of life',
    file: 'doors/connect/connection.js',
    find: `        for (const frame of frames) {
            // A bye`,
    replace: `        this.#answerProbes(true);
        for (const frame of frames) {
            // A bye`,
    catches: 'I7',
  },
  {
    name: 'two claims of one attachment are judged at once',
    file: 'doors/connect/hub.js',
    find: '(this.#claims.get(attachment) ?? Promise.resolve()).then(judge, judge)',
    replace: 'judge()',
    catches: 'I7',
  },
  {
    name: 'a claim is honoured although its socket is gone',
    file: 'doors/connect/connection.js',
    find: `        if (this.isOver)
            throw new HoldfastError('superseded', 'the connection is gone');`,
    replace: '',
    catches: 'I7',
  },
  {
    name: 'a welcome confirms its own token',
    file: 'doors/connect/connection.js',
    find: 'this.say(welcome);',
    replace: 'this.say(welcome); this.#confirm(client);',
    catches: 'I6',
  },
  {
    name: 'a goodbye before the welcome is forgotten',
    file: 'doors/connect/connection.js',
    find: 'this.#saidBye = true;',
    replace: '',
    catches: 'I9',
  },
  {
    name: 'a hello that comes late locks its page out',
    file: 'doors/connect/connection.js',
    find: `new HoldfastError('too_slow', 'hello did not come in time')`,
    replace: `new HoldfastError('bad_request', 'hello did not come in time')`,
    catches: 'I6',
  },
  {
    name: 'a silent connection is never given up',
    file: 'doors/connect/connection.js',
    find: 'if (silence > deadMs) {',
    replace: 'if (silence < 0) {',
    catches: 'I9',
  },
  {
    name: 'one who left is still counted as present',
    file: 'doors/connect/hub.js',
    find: `        if (!mayComeBack)
            this.#forget(attachment);`,
    replace: '',
    catches: 'I9',
  },
  {
    name: 'a lost connection is one that is gone for good',
    file: 'doors/connect/connection.js',
    find: 'this.hub.drop(this, id, mayComeBack)',
    replace: 'this.hub.drop(this, id, false)',
    catches: 'I10',
  },
  {
    name: 'one whose time to come back is over is still counted as present',
    file: 'doors/connect/hub.js',
    find: 'this.#living(attachment)?.attachmentEnded(reason)',
    replace: 'this.connectionOf(attachment)?.attachmentEnded(reason)',
    catches: 'I9',
  },
  {
    name: 'a request that is sent again is another one',
    file: 'doors/connect/log-channel.js',
    find: '`${attachment.id}/${id}`',
    replace: '`${attachment.id}/${id}/${attachment.epoch}`',
    catches: 'I11',
  },
  {
    name: 'a reply goes to whoever drives the session',
    file: 'doors/connect/log-channel.js',
    find: `this.#connection.say({ type: 'reply', id, ...`,
    replace: `(this.#connection.hub.driversOf(this.#reader.session.id).at(-1) ?? this.#connection).say({ type: 'reply', id, ...`,
    catches: 'I7',
  },
  {
    name: 'deltas come again after a reconnect',
    file: 'doors/connect/log-channel.js',
    find: 'afterDelta: delta',
    replace: 'afterDelta: 0',
    catches: 'I4',
  },
  {
    name: 'the stream begins at the newest event',
    file: 'doors/connect/log-channel.js',
    find: '    #openFeed() {',
    replace: `    async #openFeed() {
        this.#reader.after.seq = (await this.#reader.session.state()).seq;`,
    catches: 'I4',
  },
  {
    name: 'what was ready is sent although the socket is closed',
    file: 'doors/connect/log-channel.js',
    find: `                if (this.#connection.isOver)
                    return;`,
    replace: '',
    catches: 'I9',
  },
  {
    name: 'a welcome brings no asks',
    file: 'doors/connect/admission.js',
    find: 'asks: overview.session.asks.filter(({ kind }) => answers.includes(kind)),',
    replace: 'asks: [],',
    catches: 'I8',
  },
  {
    name: 'a driver that was taken over from goes on',
    file: 'doors/connect/connection.js',
    find: `        if (reason === 'superseded')
            return this.supersede();`,
    replace: `        if (reason === 'superseded')
            return;`,
    catches: 'I7',
  },
  {
    name: 'a token is used again',
    file: 'core/session-handle.js',
    find: 'const next = newToken(this.#authority);',
    replace: 'const next = token;',
    catches: 'I6',
  },
  {
    name: 'who is confirmed is confirmed with the whole crowd',
    file: 'core/attachments.js',
    find: 'const attachments = [...new Set(due.map(({ attachment }) => attachment))];',
    replace: 'const attachments = due.length === 0 ? [] : session.attachments.map(({ id }) => id);',
    catches: 'I6',
  },
  {
    name: 'a token that was replaced stays good',
    file: 'core/attachments.js',
    find: 'tokens: held.tokens.slice(0, 1), retired: held.tokens[1] ?? null };',
    replace: 'retired: null };',
    catches: 'I6',
  },
  {
    name: 'a token is replaced before its client has the next',
    file: 'core/attachments.js',
    find: 'const tokens = [token, shown].filter',
    replace: 'const tokens = [token].filter',
    catches: 'I6',
  },
  {
    name: 'any token will do',
    file: 'core/attachments.js',
    find: `    if (fits(attachment.tokens, shown))
        return attachment;`,
    replace: '    if (attachment.tokens.length > 0) return attachment;',
    catches: 'I6',
  },
  {
    name: 'an exclusive session that is taken over has two drivers',
    file: 'core/attachments.js',
    find: '...gone.map((other) =>',
    replace: '...[].map((other) =>',
    catches: 'I7',
  },
  {
    name: 'whoever lost its connection cannot answer any more',
    file: 'core/asks.js',
    find: '(answersUntil ?? Number.NEGATIVE_INFINITY)',
    replace: 'Number.NEGATIVE_INFINITY',
    catches: 'I8',
  },
  {
    name: 'the client does not send again what had no reply',
    file: 'client/requests.js',
    find: 'if (pending.attachment === null || pending.attachment === attachment) {',
    replace: `if (pending.attachment === attachment) {}
            else if (pending.attachment === null) {`,
    catches: 'rest',
  },
  {
    name: 'the client forgets what is pending when it ends',
    file: 'client/session.js',
    find: 'this.#requests.end(state);',
    replace: '',
    catches: 'I9',
  },
  {
    name: 'the client’s timers outlive it',
    file: 'client/connection.js',
    find: `this.#cancel('retry', 'giveUp');`,
    replace: '',
    catches: 'I9',
  },
  {
    name: 'the client listens to a connection that it has given up',
    file: 'client/connection.js',
    find: `            if (isCurrent())
                this.#message(data);`,
    replace: '            this.#message(data);',
    catches: 'I9',
  },
  {
    name: 'the client remembers its place only at a welcome',
    file: 'client/session.js',
    find: 'caughtUp: () => this.#remember(),',
    replace: 'caughtUp: () => undefined,',
    catches: 'I4',
  },
  {
    name: 'the client counts deltas on from one turn to the next',
    file: 'client/session.js',
    find: `const delta = event.type === 'turn.started' ? 0 : this.#seen.delta;`,
    replace: 'const { delta } = this.#seen;',
    catches: 'I4',
  },
  {
    name: 'the client takes asks of the past for open ones',
    file: 'client/asks.js',
    find: 'this.#known = session.seq;',
    replace: '',
    catches: 'I8',
  },
  {
    name: 'the client does not tell of asks that a welcome brought',
    file: 'client/session.js',
    find: `        for (const ask of brought)
            this.#handlers.emit('ask', ask);`,
    replace: '',
    catches: 'I8',
  },
  {
    name: 'the client takes its own answer for a late one',
    file: 'client/asks.js',
    find: `again && error.code === 'ask_settled'`,
    replace: 'false',
    catches: 'I8',
  },
  {
    name: 'the client waits for the log to say again who answered',
    file: 'client/asks.js',
    find: 'this.#settled.has(ask) ? false : null',
    replace: 'null',
    catches: 'rest',
  },
]

/** Bugs planted in held connections: both ends of them, and the buffer of what is not confirmed. */
export const HELD_MUTANTS: readonly Mutant[] = [
  {
    name: 'a replay sends nothing again',
    file: 'wire/replay.js',
    find: `        for (const message of this.#unconfirmed)
            connection.sendMessage(message);`,
    replace: '',
    catches: 'I4',
  },
  {
    name: 'a replay sends again what was confirmed',
    file: 'wire/replay.js',
    find: 'this.#unconfirmed.splice(0, ',
    replace: 'this.#unconfirmed.slice(0, ',
    catches: 'I4',
  },
  {
    name: 'a replay does not count what has come',
    file: 'wire/replay.js',
    find: '        this.#received += 1;\n',
    replace: '',
    catches: 'I4',
  },
  {
    name: 'the held client resumes without saying what has come',
    file: 'cdp/connection.js',
    find: 'session: session.id, received, take: true',
    replace: 'session: session.id, received: 0, take: true',
    catches: 'I4',
  },
  {
    name: 'the held client ignores what the server has',
    file: 'cdp/connection.js',
    find: 'this.#replay.confirm(welcome.received);',
    replace: '',
    catches: 'I4',
  },
  {
    name: 'the held client listens to a socket that it has given up',
    file: 'client/connection.js',
    find: `            if (isCurrent())
                this.#message(data);`,
    replace: '            this.#message(data);',
    catches: 'I4',
  },
  {
    name: 'the held door keeps an attachment whose browser is gone',
    file: 'doors/cdp/held.js',
    find: `        await attachment.leave('browser_gone');`,
    replace: '',
    catches: 'rest',
  },
  {
    name: 'a superseded connection of a held client goes on',
    file: 'doors/connect/connection.js',
    find: 'this.hub.take(attachment.id, this)?.supersede();',
    replace: 'this.hub.take(attachment.id, this);',
    catches: 'I4',
  },
]
